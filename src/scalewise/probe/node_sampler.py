"""Sample once a second how busy this machine is, in one process per node beside the run.

``python -m scalewise.probe.node_sampler FOLDER PID`` appends to ``FOLDER/node-<host>.jsonl``. It
ends when process PID has ended, or all processes of the run on this node, or at SIGTERM. On any
error it exits silently; the run continues. A quantity that the machine does not report is null.
"""

import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from scalewise.probe.clock_offsets import find_time_server, measure_offset
from scalewise.record.run_clock import run_clock
from scalewise.record.write import SCHEMA, LineFile

SAMPLE_SECONDS = 1.0
SEARCH_SECONDS = 10.0
"""Time between two searches for new processes, once the ranks have started."""
SAMPLE_TIMEOUT_SECONDS = 60
"""If one sample takes longer, because a driver hangs, the sampler ends and the run continues."""
MIN_TICKS_PER_CORE = 10
"""Ticks of CPU time per core that must have passed before a busy share is computed."""
POWERCAP = Path("/sys/class/powercap")
ROOT_PID_NAMESPACE = 0xEFFFFFFC
"""Linux's PROC_PID_INIT_INO: the process namespace of the machine, not of a container."""


def node_file(folder: Path, host: str) -> Path:
    """Return the path of the samples of ``host``."""
    return folder / f"node-{host}.jsonl"


def sample_until_end(folder: Path, pid: int) -> None:
    """Append samples until the run ends or SIGTERM arrives.

    The last sample is taken after the run's end, so that the energy counters cover the whole run.
    """
    signal.alarm(SAMPLE_TIMEOUT_SECONDS)  # Ends this process unless a sample renews the alarm.
    end = EndOfRun(pid)
    host, attempt = os.uname().nodename, int(os.environ.get("SCALEWISE_ATTEMPT", "1"))
    processes, processor = RunProcesses(folder), Processor()
    devices = visible_devices(load_nvml(), os.environ)
    time_server = find_time_server()
    header = {
        "schema": SCHEMA,
        "host": host,
        "interval": SAMPLE_SECONDS,
        "cores": os.cpu_count(),
        "memory": _memory_bytes()["MemTotal"],
        "devices": [device.facts() for device in devices],
    }
    file = LineFile(node_file(folder, host), attempt)
    file.line(header)
    clock, due, ended = run_clock(), time.monotonic(), False
    while not ended:
        ended = end.wait(due - time.monotonic()) or processes.all_ended
        signal.alarm(SAMPLE_TIMEOUT_SECONDS)
        processes.search()
        memory = _memory_bytes()
        busy, own = processor.shares(processes.ticks())
        values = {
            "at": round(clock.now(), 3),
            "cpu": busy,
            "own": own,
            "memory": memory["MemTotal"] - memory["MemAvailable"],
            "energy": processor.energy(),
            "devices": [device.sample(processes) for device in devices],
        }
        if time_server and (offset := measure_offset(time_server, clock.now)):
            values["ahead"], values["within"] = round(offset[0], 7), round(offset[1], 7)
        values["spent"] = round(time.process_time(), 4)
        file.line(values)
        due = max(due + SAMPLE_SECONDS, time.monotonic())
    file.close()


class EndOfRun:
    """Detects the end of the run's process, and SIGTERM."""

    def __init__(self, pid: int) -> None:
        read, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGTERM, lambda number, frame: None)
        signal.set_wakeup_fd(wake)
        self._readable_at_end = [read]
        # The open file refers to this process even after another process got the same id.
        self._status = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        with suppress(OSError, AttributeError):  # Linux before 5.3 and some Pythons lack pidfds.
            self._readable_at_end.append(os.pidfd_open(pid))

    def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds`` and return whether the run has ended."""
        if select.select(self._readable_at_end, [], [], max(seconds, 0.0))[0]:
            return True
        try:
            text = os.pread(self._status, 1024, 0)
        except OSError:
            return True
        return _stat_fields(text)[0] in (b"Z", b"X")  # Zombie, or dead.


def _stat_fields(text: bytes) -> list[bytes]:
    """Return the fields of ``/proc/PID/stat`` after the name, which may contain brackets."""
    return text.rpartition(b")")[2].split()


class RunProcesses:
    """The run's processes on this node: SCALEWISE_RUN holds the run's folder. The sampler is none.

    The environment of each process is read only once, because reading is the largest cost.
    """

    def __init__(self, folder: Path) -> None:
        self._tag = b"SCALEWISE_RUN=" + os.fsencode(folder)
        self._is_own: dict[int, bool | None] = {os.getpid(): False}  # None while undecided.
        self._files: dict[int, int] = {}  # Open ``stat`` files of the run's processes, by pid.
        self._any_found = False
        self._search_interval = SAMPLE_SECONDS / 2
        self._next_search = 0.0
        self.searched = False  # Whether ``search`` searched when it was last called.

    @property
    def all_ended(self) -> bool:
        """Whether processes of the run were found, and all of these have ended."""
        return self._any_found and not self._files

    def search(self) -> None:
        """Search for new processes, if the interval has passed."""
        self.searched = time.monotonic() >= self._next_search
        if not self.searched:
            return
        self._next_search = time.monotonic() + self._search_interval
        self._search_interval = min(self._search_interval * 2, SEARCH_SECONDS)
        living = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        for pid in self._is_own.keys() - living:
            del self._is_own[pid]
        for pid in living:
            self.contains(pid)

    def contains(self, pid: int) -> bool:
        """Return whether this process belongs to the run; False for another user's process."""
        if self._is_own.get(pid) is None:
            environment = b""
            with suppress(OSError):
                environment = Path(f"/proc/{pid}/environ").read_bytes()
            # A starting process has no environment yet, so read again; a kernel thread has none.
            undecided = not environment and pid not in self._is_own
            self._is_own[pid] = None if undecided else self._tag in environment.split(b"\0")
            if self._is_own[pid]:
                with suppress(OSError):
                    self._files[pid] = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
                    self._any_found = True
        return bool(self._is_own[pid])

    def ticks(self) -> dict[int, int]:
        """Return the CPU time of each process so far, in the system's clock ticks."""
        ticks = {}
        for pid, file in list(self._files.items()):
            try:
                fields = _stat_fields(os.pread(file, 1024, 0))
            except OSError:
                os.close(self._files.pop(pid))
                continue
            ticks[pid] = int(fields[11]) + int(fields[12])  # User and system time.
        return ticks


class Processor:
    """The node's cores: their busy share and their energy."""

    def __init__(self) -> None:
        self._file = os.open("/proc/stat", os.O_RDONLY)
        self._last_busy_and_total: tuple[int, int] | None = None
        self._last_own: Mapping[int, int] = {}
        self._packages = cpu_packages(POWERCAP)
        self._microjoules = [_read_counter(package / "energy_uj") for package in self._packages]
        self._joules = 0.0

    def shares(self, own: Mapping[int, int]) -> tuple[float | None, float | None]:
        """Return the busy share of all cores since the last sample, and the run's own share.

        ``own`` maps the run's processes to their ticks. None, None if too few ticks have passed.
        """
        busy_ticks, total_ticks = now = busy_and_total(os.pread(self._file, 512, 0))
        before, self._last_busy_and_total = self._last_busy_and_total, now
        last_own, self._last_own = self._last_own, own
        own_ticks = sum(max(ticks - last_own.get(pid, ticks), 0) for pid, ticks in own.items())
        passed = total_ticks - before[1] if before else 0
        if not before or passed < MIN_TICKS_PER_CORE * (os.cpu_count() or 1):
            return None, None
        # Linux's iowait counter is inexact, so the busy ticks may seem to decrease.
        busy = min(max(busy_ticks - before[0], 0) / passed, 1.0)
        return round(busy, 4), round(min(own_ticks / passed, 1.0), 4)

    def energy(self) -> float | None:
        """Return the joules of all processors since the sampler started; None if unreadable."""
        if not self._packages:
            return None
        for index, package in enumerate(self._packages):
            before, now = self._microjoules[index], _read_counter(package / "energy_uj")
            if before is None or now is None:
                return None
            top = _read_counter(package / "max_energy_range_uj")
            self._joules += counter_increase(before, now, top) / 1e6
            self._microjoules[index] = now
        return round(self._joules, 3)


def busy_and_total(text: bytes) -> tuple[int, int]:
    """Return busy and total ticks of all cores, from the first line of ``/proc/stat``.

    Waiting for a disk counts as idle, and time taken by the hypervisor as busy. The last columns
    (guests) are ignored, because user time includes them.

    >>> busy_and_total(b"cpu  50 1 20 900 9 0 5 15 40 0")
    (91, 1000)
    """
    ticks = [int(field) for field in text.split(b"\n", 1)[0].split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def counter_increase(before: int, now: int, top: int | None) -> int:
    """Return the increase of a counter that restarts at zero after ``top``.

    >>> counter_increase(900, 950, 1000), counter_increase(900, 50, 1000)
    (50, 150)
    """
    return now - before if now >= before else now - before + (top or before)


def cpu_packages(folder: Path) -> list[Path]:
    """Return the folders of the RAPL energy counters of whole processors.

    Counters of their parts (``intel-rapl:0:0``) and of the platform (``psys``) overlap with these.
    """
    with suppress(OSError):
        names = sorted(folder.glob("intel-rapl:*/name"))
        return [name.parent for name in names if name.read_text().startswith("package")]
    return []


def _read_counter(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # Most systems let only root read the counters.
        return None


def _memory_bytes() -> dict[str, int]:
    """Return the first lines of ``/proc/meminfo`` (total, free, available), in bytes."""
    with open("/proc/meminfo", "rb", buffering=0) as file:
        lines = [line.split() for line in file.read(256).split(b"\n")[:3]]
    return {name.decode().rstrip(":"): int(kibibytes) * 1024 for name, kibibytes, *_ in lines}


def load_nvml(name: str = "libnvidia-ml.so.1") -> Any:
    """Return NVIDIA's management library, initialised, or None."""
    try:
        library = ctypes.CDLL(name)
        return None if library.nvmlInit_v2() else library
    except (OSError, AttributeError):
        return None


def visible_devices(library: Any, environment: Mapping[str, str]) -> list["Device"]:
    """Return the physical devices that CUDA_VISIBLE_DEVICES allows, without duplicates."""
    count = ctypes.c_uint()
    if library is None or library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        return []
    devices = [Device(library, index) for index in range(count.value)]
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return devices
    uuids = [device.uuid or "" for device in devices]
    return [devices[index] for index in visible_indices(visible, uuids)]


def visible_indices(visible: str, uuids: Sequence[str]) -> list[int]:
    """Return the indices of the devices in CUDA_VISIBLE_DEVICES, named by number or UUID prefix.

    Numbers follow the order on the bus. CUDA numbers devices so only if all are of one model.

    >>> visible_indices("1,GPU-a,-1,0", ["GPU-ab", "GPU-cd"])
    [1, 0]
    """
    indices: dict[int, None] = {}
    for name in (name.strip() for name in visible.split(",")):
        if name.isdecimal() and int(name) < len(uuids):
            indices[int(name)] = None
            continue
        matches = [index for index, uuid in enumerate(uuids) if uuid.startswith(name)]
        if not name or len(matches) != 1:
            break  # As in CUDA, the list ends at the first invalid name.
        indices[matches[0]] = None
    return list(indices)


class Device:
    """One physical device, queried through NVML."""

    def __init__(self, library: Any, index: int) -> None:
        self.index = index
        self._library = library
        self._handle = ctypes.c_void_p()
        self._own_and_foreign_counts: tuple[int | None, int | None] = None, None
        self._call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(self._handle), leading=())
        self.uuid = self._read_text("nvmlDeviceGetUUID")

    def facts(self) -> dict[str, Any]:
        """Return the constant facts: name, bytes of memory, power limit in watts."""
        total, _, _ = self._read_numbers("nvmlDeviceGetMemoryInfo", ctypes.c_ulonglong, 3)
        return {
            "index": self.index,
            "name": self._read_text("nvmlDeviceGetName"),
            "uuid": self.uuid,
            "driver": self._read_text("nvmlSystemGetDriverVersion", leading=()),
            "memory": total,
            "power_limit": _from_thousandths(self._read_number("nvmlDeviceGetEnforcedPowerLimit")),
        }

    def sample(self, processes: RunProcesses) -> dict[str, Any]:
        """Return the current readings; ``energy`` counts joules since the driver was loaded."""
        _, _, used = self._read_numbers("nvmlDeviceGetMemoryInfo", ctypes.c_ulonglong, 3)
        busy_percent, _ = self._read_numbers("nvmlDeviceGetUtilizationRates", ctypes.c_uint, 2)
        energy = self._read_number("nvmlDeviceGetTotalEnergyConsumption", kind=ctypes.c_ulonglong)
        if processes.searched:
            self._own_and_foreign_counts = self._own_and_foreign(processes)
        return {
            "index": self.index,
            "utilisation": None if busy_percent is None else busy_percent / 100,
            "memory": used,
            "power": _from_thousandths(self._read_number("nvmlDeviceGetPowerUsage")),
            # NVML's clock 1 is that of the multiprocessors; its sensor 0 is that of the GPU.
            "clock": self._read_number("nvmlDeviceGetClockInfo", 1),
            "temperature": self._read_number("nvmlDeviceGetTemperature", 0),
            "energy": _from_thousandths(energy),
            "own": self._own_and_foreign_counts[0],
            "foreign": self._own_and_foreign_counts[1],
        }

    def _own_and_foreign(self, processes: RunProcesses) -> tuple[int | None, int | None]:
        """Return how many processes of the run use this device, and how many other processes.

        None, None if a process is hidden from this container, because it may be the run's own.
        """
        # ``_v3`` is not used, because its layout differs between drivers.
        for version, fields in (("_v2", 6), ("", 4)):
            count = ctypes.c_uint(128)
            rows = (ctypes.c_uint * fields * count.value)()
            name = "nvmlDeviceGetComputeRunningProcesses" + version
            if not self._call(name, ctypes.byref(count), ctypes.byref(rows)):
                continue
            pids = [rows[index][0] for index in range(count.value)]
            visible = [pid for pid in pids if _is_alive(pid)]
            in_container = os.stat("/proc/self/ns/pid").st_ino != ROOT_PID_NAMESPACE
            if len(visible) < len(pids) and in_container:
                break
            own = sum(processes.contains(pid) for pid in visible)
            return own, len(visible) - own
        return None, None

    def _read_numbers(self, name: str, kind: type[Any], size: int, *args: int) -> list[int | None]:
        """Return the fields of a structure of ``size`` numbers; all None if unknown."""
        values = (kind * size)()
        succeeded = self._call(name, *args, ctypes.byref(values))
        return list(values) if succeeded else [None] * size

    def _read_number(self, name: str, *args: int, kind: type[Any] = ctypes.c_uint) -> int | None:
        return self._read_numbers(name, kind, 1, *args)[0]

    def _read_text(self, name: str, leading: Sequence[Any] | None = None) -> str | None:
        buffer = ctypes.create_string_buffer(96)
        succeeded = self._call(name, buffer, len(buffer), leading=leading)
        return buffer.value.decode(errors="replace") if succeeded else None

    def _call(self, name: str, *args: Any, leading: Sequence[Any] | None = None) -> bool:
        """Return whether an NVML call succeeded; ``leading`` replaces the device's handle."""
        function = getattr(self._library, name, None)
        leading = (self._handle,) if leading is None else leading
        return function is not None and function(*leading, *args) == 0


def _from_thousandths(number: int | None) -> float | None:
    return None if number is None else number / 1000


def _is_alive(pid: int) -> bool:
    """Return whether this process exists, even if ``/proc`` hides other users' processes."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def main(arguments: Sequence[str]) -> None:
    """Sample for ``FOLDER PID``; on any error, exit silently."""
    with suppress(Exception):
        folder, pid = arguments
        sample_until_end(Path(folder), int(pid))


if __name__ == "__main__":
    main(sys.argv[1:])
