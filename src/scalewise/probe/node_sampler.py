"""Sample once a second how busy this machine is; one process per node, beside the run.

Started as ``python -m scalewise.probe.node_sampler FOLDER PID``, it appends to
``FOLDER/node-<host>.jsonl`` until process PID is gone, all of the run's processes on
this node are, or SIGTERM comes. It is a
guest: whatever goes wrong, it falls silent and leaves, and the run goes on.

Devices are asked through the driver's own library, and only those that
CUDA_VISIBLE_DEVICES shows. In a job of several nodes clocks are compared with the
first node's. Each quantity that the machine does not tell is null.
"""

import ctypes
import json
import os
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from scalewise.probe.clock_offsets import of_job
from scalewise.record.write import SCHEMA

INTERVAL = 1.0
"""Seconds between two samples."""
LOOK = 10.0
"""Seconds between two searches for new processes, once the run has settled."""
PATIENCE = 60
"""Seconds a sample may take; a driver that hangs longer ends the sampler, not the run."""
TICKS = 10
"""Ticks of each core that a share is taken of, at least."""
POWERCAP = Path("/sys/class/powercap")

_encode = json.JSONEncoder(separators=(",", ":")).encode


def node_file(folder: Path, host: str) -> Path:
    """Return where the sampler of ``host`` keeps its lines."""
    return folder / f"node-{host}.jsonl"


def sample_until_gone(folder: Path, pid: int) -> None:
    """Append samples to the node's file until process ``pid`` is gone or SIGTERM comes.

    The last sample is taken after that, so that the energy counters cover the run.
    """
    signal.alarm(PATIENCE)
    ending = Ending(pid)
    host, attempt = os.uname().nodename, int(os.environ.get("SCALEWISE_ATTEMPT", "1"))
    crew, processor = Crew(folder), Processor()
    devices = visible_devices(driver(), os.environ)
    clocks = of_job()
    first = {
        "schema": SCHEMA,
        "host": host,
        "interval": INTERVAL,
        "cores": os.cpu_count(),
        "memory": _memory()["MemTotal"],
        "devices": [device.facts() for device in devices],
    }
    with node_file(folder, host).open("ab", buffering=0) as file:
        torn = b"\n" if file.tell() else b""  # An earlier attempt may have been cut off.
        file.write(torn + _line(attempt, first))
        anchor, due, over = time.time() - time.monotonic(), time.monotonic(), False
        while not over:
            over = ending.within(due - time.monotonic()) or crew.gone
            signal.alarm(PATIENCE)
            values = {"at": round(anchor + time.monotonic(), 3), **_sample(crew, processor)}
            values["devices"] = [device.sample(crew) for device in devices]
            if clocks and (apart := clocks.look()):
                values["ahead"], values["within"] = (round(each, 7) for each in apart)
            values["spent"] = round(time.process_time(), 4)
            file.write(_line(attempt, values))
            due = max(due + INTERVAL, time.monotonic())


def _line(attempt: int, values: Mapping[str, Any]) -> bytes:
    return _encode({"attempt": attempt, **values}).encode() + b"\n"


def _sample(crew: "Crew", processor: "Processor") -> dict[str, Any]:
    """Return what the node itself tells: shares of all cores, bytes, joules."""
    crew.look()
    memory = _memory()
    busy, own = processor.shares(crew.ticks())
    used = memory["MemTotal"] - memory["MemAvailable"]
    return {"cpu": busy, "own": own, "memory": used, "energy": processor.energy()}


class Ending:
    """Knows when the run's process is gone, or when SIGTERM has come."""

    def __init__(self, pid: int) -> None:
        read, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGTERM, lambda number, frame: None)
        signal.set_wakeup_fd(wake)
        self._ends = [read]
        # Open files name this very process, also after its id was given to another.
        self._status = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        with suppress(OSError, AttributeError):  # Linux before 5.3 has none, nor do some Pythons.
            self._ends.append(os.pidfd_open(pid))

    def within(self, seconds: float) -> bool:
        """Wait that long at most, and say whether the end has come."""
        return bool(select.select(self._ends, [], [], max(seconds, 0.0))[0]) or self._gone()

    def _gone(self) -> bool:
        try:
            text = os.pread(self._status, 1024, 0)
        except OSError:
            return True
        return _after_name(text)[0] in (b"Z", b"X")


def _after_name(text: bytes) -> list[bytes]:
    """Return the fields of a process's ``stat`` from the third on; a name may have brackets."""
    return text.rpartition(b")")[2].split()


class Crew:
    """The run's own processes: those that carry its folder in SCALEWISE_RUN.

    Each process is judged once, because reading all of them again and again
    would cost more than the rest. New ones are looked for often while the ranks
    start, then every ten seconds. The sampler itself does not count.
    """

    def __init__(self, folder: Path) -> None:
        self._tag = b"SCALEWISE_RUN=" + os.fsencode(folder)
        self._judged: dict[int, bool | None] = {os.getpid(): False}
        self._files: dict[int, int] = {}
        self._met = False
        self._pause = INTERVAL / 2
        self._due = 0.0
        self.fresh = False
        """Whether this sample has looked for processes."""

    @property
    def gone(self) -> bool:
        """Whether there were some, and none is left."""
        return self._met and not self._files

    def look(self) -> None:
        """Look for new processes, if it is time."""
        self.fresh = time.monotonic() >= self._due
        if not self.fresh:
            return
        self._due = time.monotonic() + self._pause
        self._pause = min(self._pause * 2, LOOK)
        living = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        for pid in self._judged.keys() - living:
            del self._judged[pid]
        for pid in living:
            self.has(pid)

    def has(self, pid: int) -> bool:
        """Say whether this process belongs to the run; another user's is none of ours."""
        if self._judged.get(pid) is None:
            environment = b""
            with suppress(OSError):
                environment = Path(f"/proc/{pid}/environ").read_bytes()
            # A process that is just starting has none yet; the system's own never have.
            unclear = not environment and pid not in self._judged
            self._judged[pid] = None if unclear else self._tag in environment.split(b"\0")
            if self._judged[pid]:
                with suppress(OSError):
                    self._files[pid] = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
                    self._met = True
        return bool(self._judged[pid])

    def ticks(self) -> dict[int, int]:
        """Return the processor time that each process has taken so far, in the system's ticks."""
        found = {}
        for pid, file in list(self._files.items()):
            try:
                fields = _after_name(os.pread(file, 1024, 0))
            except OSError:
                os.close(self._files.pop(pid))
                continue
            found[pid] = int(fields[11]) + int(fields[12])
        return found


class Processor:
    """The node's cores: how busy they are, and the energy they take."""

    def __init__(self) -> None:
        self._file = os.open("/proc/stat", os.O_RDONLY)
        self._all: tuple[int, int] | None = None
        self._own: Mapping[int, int] = {}
        self._packages = packages(POWERCAP)
        self._counts = [_number(package / "energy_uj") for package in self._packages]
        self._joules = 0.0

    def shares(self, own: Mapping[int, int]) -> tuple[float | None, float | None]:
        """Return the busy share of all cores since the last sample, and that of the run.

        ``own`` holds the ticks of the run's processes; one that is new counts
        from its first sample on. Unknown where too few ticks have passed to be shared.
        """
        now = busy_and_all(os.pread(self._file, 512, 0))
        before, self._all = self._all, now
        taken = sum(max(ticks - self._own.get(pid, ticks), 0) for pid, ticks in own.items())
        self._own = own
        passed = now[1] - before[1] if before else 0
        if not before or passed < TICKS * (os.cpu_count() or 1):
            return None, None
        # Ticks spent waiting for a disk may run backwards for a moment.
        busy = min(max(now[0] - before[0], 0) / passed, 1.0)
        return round(busy, 4), round(min(taken / passed, 1.0), 4)

    def energy(self) -> float | None:
        """Return the joules that all packages took since the sampler began."""
        if not self._packages:
            return None
        for place, package in enumerate(self._packages):
            before, now = self._counts[place], _number(package / "energy_uj")
            if before is None or now is None:
                return None
            self._joules += climbed(before, now, _number(package / "max_energy_range_uj")) / 1e6
            self._counts[place] = now
        return round(self._joules, 3)


def busy_and_all(text: bytes) -> tuple[int, int]:
    """Return busy ticks and all ticks of all cores, from the first line of ``/proc/stat``.

    Waiting for a disk is idle; time that went to other guests of the host is
    not. Guests of this machine are already counted as its users.

    >>> busy_and_all(b"cpu  50 1 20 900 9 0 5 15 40 0")
    (91, 1000)
    """
    ticks = [int(word) for word in text.split(b"\n", 1)[0].split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def climbed(before: int, now: int, top: int | None) -> int:
    """Return how far a counter climbed that starts again at zero after ``top``.

    >>> climbed(900, 950, 1000), climbed(900, 50, 1000)
    (50, 150)
    """
    return now - before if now >= before else now - before + (top or before)


def packages(folder: Path) -> list[Path]:
    """Return the energy counters of whole processors.

    Their parts (``intel-rapl:0:0``) and the whole platform (``psys``) would
    count the same joules again.
    """
    with suppress(OSError):
        found = sorted(folder.glob("intel-rapl:*/name"))
        return [name.parent for name in found if name.read_text().startswith("package")]
    return []


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # Most systems show energy to the administrator alone.
        return None


def _memory() -> dict[str, int]:
    """Return the first lines of ``/proc/meminfo``, in bytes."""
    with open("/proc/meminfo", "rb", buffering=0) as file:
        lines = [line.split() for line in file.read(256).split(b"\n")[:3]]
    return {words[0].decode().rstrip(":"): int(words[1]) * 1024 for words in lines}


def driver(name: str = "libnvidia-ml.so.1") -> Any:
    """Return the device driver's library, ready to be asked, or nothing."""
    try:
        library = ctypes.CDLL(name)
        return None if library.nvmlInit_v2() else library
    except (OSError, AttributeError):
        return None


def visible_devices(library: Any, environment: Mapping[str, str]) -> list["Device"]:
    """Return the physical devices that the run may use, each once."""
    count = ctypes.c_uint()
    if library is None or library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return []
    every = [Device(library, index) for index in range(count.value)]
    shown = environment.get("CUDA_VISIBLE_DEVICES")
    if shown is None:
        return every
    names = [device.uuid or "" for device in every]
    return [every[index] for index in chosen(shown, names)]


def chosen(shown: str, uuids: Sequence[str]) -> list[int]:
    """Return the devices that CUDA_VISIBLE_DEVICES names, by number or the start of a UUID.

    As in CUDA, the list ends at the first name that means nothing. Numbers
    count in the order of the bus, which CUDA follows among equal devices.

    >>> chosen("1,GPU-a,-1,0", ["GPU-ab", "GPU-cd"])
    [1, 0]
    """
    found: dict[int, None] = {}
    for word in (word.strip() for word in shown.split(",")):
        if word.isdecimal() and int(word) < len(uuids):
            found[int(word)] = None
            continue
        near = [index for index, uuid in enumerate(uuids) if uuid.startswith(word)]
        if not word or len(near) != 1:
            break
        found[near[0]] = None
    return list(found)


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class _Rates(ctypes.Structure):
    _fields_ = [("device", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Device:
    """One physical device, as the driver knows it."""

    def __init__(self, library: Any, index: int) -> None:
        self.index = index
        self._library = library
        self._handle = ctypes.c_void_p()
        self._processes: tuple[int | None, int | None] = None, None
        self._ask("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(self._handle), whom=())
        self.uuid = self._text("nvmlDeviceGetUUID")

    def facts(self) -> dict[str, Any]:
        """Return what does not change: name, bytes of memory, watts allowed."""
        memory = self._memory()
        return {
            "index": self.index,
            "name": self._text("nvmlDeviceGetName"),
            "uuid": self.uuid,
            "driver": self._text("nvmlSystemGetDriverVersion", whom=()),
            "memory": memory.total if memory else None,
            "power_limit": _thousandth(self._count("nvmlDeviceGetEnforcedPowerLimit")),
        }

    def sample(self, crew: Crew) -> dict[str, Any]:
        """Return what the device does now; ``energy`` counts joules since its driver began.

        Who uses it is asked when the crew is looked for, and stands until the next time.
        """
        memory, rates = self._memory(), _Rates()
        rated = self._ask("nvmlDeviceGetUtilizationRates", ctypes.byref(rates))
        energy = self._count("nvmlDeviceGetTotalEnergyConsumption", kind=ctypes.c_ulonglong)
        if crew.fresh:
            self._processes = self._own_and_foreign(crew)
        return {
            "index": self.index,
            "utilisation": rates.device / 100 if rated else None,
            "memory": memory.used if memory else None,
            "power": _thousandth(self._count("nvmlDeviceGetPowerUsage")),
            "clock": self._count("nvmlDeviceGetClockInfo", 1),  # That of the multiprocessors.
            "temperature": self._count("nvmlDeviceGetTemperature", 0),
            "energy": _thousandth(energy),
            "own": self._processes[0],
            "foreign": self._processes[1],
        }

    def _own_and_foreign(self, crew: Crew) -> tuple[int | None, int | None]:
        """Return how many processes of the run compute here, and how many others.

        Unknown where the driver names processes that this container cannot see:
        they may be the run's own, under other ids.
        """
        pids = self._pids()
        if pids is None:
            return None, None
        seen = [pid for pid in pids if _lives(pid)]
        if len(seen) < len(pids) and not _sees_all_processes():
            return None, None
        own = sum(crew.has(pid) for pid in seen)
        return own, len(seen) - own

    def _pids(self) -> list[int] | None:
        # The third version had another shape in some drivers; the second never changed.
        for name, words in (("_v2", 6), ("", 4)):
            room = ctypes.c_uint(128)
            rows = (ctypes.c_uint * words * room.value)()
            asked = "nvmlDeviceGetComputeRunningProcesses" + name
            if self._ask(asked, ctypes.byref(room), ctypes.byref(rows)):
                return [rows[place][0] for place in range(room.value)]
        return None

    def _memory(self) -> _Memory | None:
        memory = _Memory()
        return memory if self._ask("nvmlDeviceGetMemoryInfo", ctypes.byref(memory)) else None

    def _count(self, name: str, *which: int, kind: type[Any] = ctypes.c_uint) -> int | None:
        box = kind()
        return int(box.value) if self._ask(name, *which, ctypes.byref(box)) else None

    def _text(self, name: str, whom: Sequence[Any] | None = None) -> str | None:
        box = ctypes.create_string_buffer(96)
        told = self._ask(name, box, len(box), whom=whom)
        return box.value.decode(errors="replace") if told else None

    def _ask(self, name: str, *arguments: Any, whom: Sequence[Any] | None = None) -> bool:
        """Call a function of the driver, about this device, and say whether it answered."""
        function = getattr(self._library, name, None)
        about = (self._handle,) if whom is None else whom
        return function is not None and function(*about, *arguments) == 0


def _thousandth(count: int | None) -> float | None:
    return None if count is None else count / 1000


def _lives(pid: int) -> bool:
    """Say whether this process exists; ``/proc`` may hide those of other users."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _sees_all_processes() -> bool:
    """Say whether process ids here are those of the machine, and not a container's own."""
    return os.stat("/proc/self/ns/pid").st_ino == 0xEFFFFFFC  # Fixed in every Linux.


def main(arguments: Sequence[str]) -> None:
    """Sample as asked; whatever goes wrong, leave without a word."""
    with suppress(Exception):
        folder, pid = arguments
        sample_until_gone(Path(folder), int(pid))


if __name__ == "__main__":
    main(sys.argv[1:])
