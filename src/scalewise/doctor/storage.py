"""Check a folder's disk: free space, speed, small files, and the file server's clock."""

import os
import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from scalewise.doctor.finding import Finding, Remark, format_bytes, make_finding
from scalewise.launch.command_output import run_command

SHARED_FILE_SYSTEMS = (
    "nfs", "lustre", "gpfs", "beegfs", "ceph", "9p", "cifs", "smb", "panfs", "weka", "fuse.",
)  # fmt: skip
"""Prefixes of the names of network file systems."""
CHUNK_BYTES = 4 * 2**20
MAX_SMALL_FILES = 200
TEST_SECONDS = 0.4
"""Seconds that each of the two speed tests may take."""
SLOW_FILES_PER_SECOND = 500.0
"""Small files per second below which a folder of images slows training down."""
MAX_CLOCK_OFFSET_SECONDS = 1.0
"""A larger offset between two clocks makes the times of ranks incomparable."""


def check_disk(folder: Path, mounts: str) -> Finding:
    """Write to the folder of the runs, and report free space and speed."""
    free = shutil.disk_usage(folder).free
    kind = file_system(folder.resolve(), mounts)
    evidence: dict[str, Any] = {"folder": str(folder), "free": free, "file_system": kind}
    try:
        with tempfile.TemporaryDirectory(prefix=".scalewise-", dir=folder) as temporary:
            bandwidth = measure_write_bandwidth(Path(temporary))
            file_rate = measure_small_files(Path(temporary))
    except OSError as error:
        says, hint = f"cannot write in {folder}: {error.strerror}", "run elsewhere, or give -o"
        return Finding("disk", says, hint, "fault", evidence)
    shared = bool(kind) and str(kind).startswith(SHARED_FILE_SYSTEMS)
    remarks = []
    if free <= 2**30:
        remarks.append(Remark("fault", "nearly full", "free some space, or give -o"))
    if file_rate < SLOW_FILES_PER_SECOND:
        problem = "slow with small files" + (", and shared with other machines" if shared else "")
        hint = "pack training data into few large files (shards), or copy it to a local disk first"
        remarks.append(Remark("note", problem, hint))
    says = (
        f"{format_bytes(free)} free in {folder} ({kind or 'unknown file system'}), "
        f"writes {bandwidth / 1e6:.0f} MB/s, {file_rate:.0f} small files/s"
    )
    measured = {"shared": shared, "write_bandwidth": bandwidth, "small_files_per_second": file_rate}
    return make_finding("disk", says, remarks, {**evidence, **measured})


def file_system(folder: Path, mounts: str) -> str | None:
    """Return the type of a folder's file system, from the text of ``/proc/mounts``.

    >>> file_system(Path("/data/x"), "a / ext4 rw 0 0\\nb /data nfs4 rw 0 0\\n")
    'nfs4'
    """
    longest: tuple[int, str | None] = (-1, None)  # Length and type of the deepest mount point.
    for line in mounts.splitlines():
        _, mount_point, kind, *_ = line.split()
        # A space in the path is written as \040.
        mount_point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), mount_point)
        # Of two mounts at one point, the later one covers the earlier.
        if folder.is_relative_to(mount_point) and len(mount_point) >= longest[0]:
            longest = (len(mount_point), kind)
    return longest[1]


def measure_write_bandwidth(folder: Path) -> float:
    """Return the bytes per second that reach the disk."""
    block, written, began = os.urandom(CHUNK_BYTES), 0, time.perf_counter()
    with (folder / "speed").open("wb", buffering=0) as file:
        while written < 8 * CHUNK_BYTES and time.perf_counter() - began < TEST_SECONDS:
            written += file.write(block)
            os.fsync(file.fileno())
    return written / (time.perf_counter() - began)


def measure_small_files(folder: Path) -> float:
    """Return how many files of 4 KiB can be created, read and removed per second."""
    done, began = 0, time.perf_counter()
    while done < MAX_SMALL_FILES and time.perf_counter() - began < TEST_SECONDS:
        path = folder / f"{done}"
        path.write_bytes(bytes(4096))
        path.read_bytes()
        path.unlink()
        done += 1
    return done / (time.perf_counter() - began)


def check_clock(folder: Path) -> Finding:
    """Compare this host's clock with that of the folder's file server; report whether NTP is on."""
    with tempfile.NamedTemporaryFile(prefix=".scalewise-", dir=folder) as file:
        before = time.time()
        file.write(b"x")
        file.flush()
        os.fsync(file.fileno())
        server_time, after = os.stat(file.name).st_mtime, time.time()
    # The file was written between the two readings: a server time between them is no offset.
    ahead = min(server_time - before, 0.0) + max(server_time - after, 0.0)
    query = ("timedatectl", "show", "--property=NTPSynchronized", "--value")
    answer = run_command(*query, seconds=2.0)
    synchronized = {"yes": True, "no": False}.get(answer.stdout.strip()) if answer.ok else None
    remarks = []
    if abs(ahead) > MAX_CLOCK_OFFSET_SECONDS:
        hint = "let NTP set both clocks: times of ranks on several hosts cannot be compared"
        remarks.append(Remark("fault", "host and file server disagree", hint))
    if synchronized is False:
        hint = "timedatectl set-ntp true, before runs on several hosts"
        remarks.append(Remark("note", "not synchronized by NTP", hint))
    ntp = {True: "synchronized by NTP", False: "", None: "NTP unknown"}[synchronized]
    says = f"the file server's clock is {abs(ahead):.2f} s {'ahead' if ahead > 0 else 'behind'}"
    if abs(ahead) < 0.1:
        says = "the file server's clock is the same"
    says = f"{says}, {ntp}" if ntp else says
    return make_finding("clock", says, remarks, {"file_server_ahead": ahead, "ntp": synchronized})
