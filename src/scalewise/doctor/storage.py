"""What the folder's disk does: room, speed, many small files, and whose clock it has."""

import os
import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from scalewise.doctor.finding import Finding, Remark, format_bytes, make_finding, run_command

SHARED_FILE_SYSTEMS = (
    "nfs",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "9p",
    "cifs",
    "smb",
    "panfs",
    "weka",
    "fuse.",
)
"""How the names of file systems begin that other machines may share."""
CHUNK_BYTES = 4 * 2**20
MAX_SMALL_FILES = 200
TEST_SECONDS = 0.4
"""Seconds that each of the two speeds may take."""
SLOW_FILES_PER_SECOND = 500.0
"""Small files per second below which a folder of images holds a training up."""
MAX_CLOCK_OFFSET_SECONDS = 1.0
"""Seconds between two clocks that spoil the times of a run."""


def check_disk(folder: Path, mounts: str) -> Finding:
    """Write in the folder where runs go, and say how that went."""
    free = shutil.disk_usage(folder).free
    kind = file_system(folder.resolve(), mounts)
    evidence: dict[str, Any] = {"folder": str(folder), "free": free, "file_system": kind}
    try:
        with tempfile.TemporaryDirectory(prefix=".scalewise-", dir=folder) as place:
            speed = measure_write_bandwidth(Path(place))
            rate = measure_small_files(Path(place))
    except OSError as why:
        says, hint = f"cannot write in {folder}: {why.strerror}", "run elsewhere, or give -o"
        return Finding("disk", says, hint, "fault", evidence)
    shared = bool(kind) and str(kind).startswith(SHARED_FILE_SYSTEMS)
    remarks = []
    if free <= 2**30:
        remarks.append(Remark("fault", "nearly full", "free some space, or give -o"))
    if rate < SLOW_FILES_PER_SECOND:
        where = "slow with small files" + (", and others share it" if shared else "")
        hint = "pack training data into few large files (shards), or copy it to a local disk first"
        remarks.append(Remark("note", where, hint))
    says = (
        f"{format_bytes(free)} free in {folder} ({kind or 'unknown file system'}), "
        f"writes {speed / 1e6:.0f} MB/s, {rate:.0f} small files/s"
    )
    measured = {"shared": shared, "write_bandwidth": speed, "small_files_per_second": rate}
    return make_finding("disk", says, remarks, {**evidence, **measured})


def file_system(folder: Path, mounts: str) -> str | None:
    """Return the kind of file system a folder lies on, from the text of ``/proc/mounts``.

    >>> file_system(Path("/data/x"), "a / ext4 rw 0 0\\nb /data nfs4 rw 0 0\\n")
    'nfs4'
    """
    best: tuple[int, str | None] = (-1, None)
    for line in mounts.splitlines():
        _, place, kind, *_ = line.split()
        place = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), place)
        if folder.is_relative_to(place) and len(place) >= best[0]:  # The later one covers.
            best = (len(place), kind)
    return best[1]


def measure_write_bandwidth(folder: Path) -> float:
    """Return bytes per second that reach the disk."""
    block, written, began = os.urandom(CHUNK_BYTES), 0, time.perf_counter()
    with (folder / "speed").open("wb", buffering=0) as file:
        while written < 8 * CHUNK_BYTES and time.perf_counter() - began < TEST_SECONDS:
            written += file.write(block)
            os.fsync(file.fileno())
    return written / (time.perf_counter() - began)


def measure_small_files(folder: Path) -> float:
    """Return how many files of 4 KiB per second are made, read and removed."""
    done, began = 0, time.perf_counter()
    while done < MAX_SMALL_FILES and time.perf_counter() - began < TEST_SECONDS:
        path = folder / f"{done}"
        path.write_bytes(bytes(4096))
        path.read_bytes()
        path.unlink()
        done += 1
    return done / (time.perf_counter() - began)


def check_clock(folder: Path) -> Finding:
    """Compare this host's clock with the file server's, and ask whether it is kept right."""
    with tempfile.NamedTemporaryFile(prefix=".scalewise-", dir=folder) as file:
        before = time.time()
        file.write(b"x")
        file.flush()
        os.fsync(file.fileno())
        server, after = os.stat(file.name).st_mtime, time.time()
    # What lies between the two readings is no difference; file times are coarse.
    ahead = min(server - before, 0.0) + max(server - after, 0.0)
    answer = run_command(
        "timedatectl", "show", "--property=NTPSynchronized", "--value", seconds=2.0
    )
    kept = {"yes": True, "no": False}.get(answer.said.strip()) if answer and answer.well else None
    remarks = []
    if abs(ahead) > MAX_CLOCK_OFFSET_SECONDS:
        hint = "have both clocks set by NTP: times of ranks on several hosts cannot be compared"
        remarks.append(Remark("fault", "host and file server disagree", hint))
    if kept is False:
        hint = "timedatectl set-ntp true, before runs on several hosts"
        remarks.append(Remark("note", "not kept right by NTP", hint))
    words = {True: "kept right by NTP", False: "", None: "NTP unknown"}[kept]
    says = f"the folder's clock is {abs(ahead):.2f} s {'ahead' if ahead > 0 else 'behind'}"
    if abs(ahead) < 0.1:
        says = "the folder's clock is the same"
    says = f"{says}, {words}" if words else says
    return make_finding("clock", says, remarks, {"file_server_ahead": ahead, "ntp": kept})
