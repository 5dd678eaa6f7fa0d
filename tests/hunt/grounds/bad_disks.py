"""Let the disk of a run or of a report fail: nothing measured is lost, and the event is reported.

A run of two ranks writes to a file system of ``_fuse`` that becomes full, read-only, stale or
slow, for a while or for ever; its folder is moved or deleted; reports are written to a full disk.
"""

import contextlib
import ctypes
import functools
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from run_processes import kill_left
from scalewise.cli import main
from scalewise.record.close import close
from scalewise.record.write import write_json
from scalewise.spec import StudySpec

NEEDS = ("root", "fuse")
LIMIT = 180.0
SCALEWISE = str(Path(sys.executable).with_name("scalewise"))
STEPS = 150
PROGRAM = f"""
import time
from scalewise import probe
for step in range({STEPS}):
    time.sleep(0.02)
    probe.lap("forward")
    probe.step(samples=8)
"""
STUDY = """
name = "disk"
[run]
program = ["python3", "steps.py"]
start = "node"
[vary]
topology = ["2x1"]
"""
REFUSALS = {
    "full": "No space left on device", "quota": "Disk quota exceeded",
    "read-only": "Read-only file system", "io": "Input/output error",
    "stale": "Stale file handle",
}  # fmt: skip
OUTPUTS = (
    *(["report", "-o", f"{{out}}/report.{ending}"]
      for ending in ("html", "json", "md", "txt", "csv", "tex", "png", "svg", "pdf")),
    ["report", "--slides", "-o", "{out}/slides.pdf"],
    ["report", "--slides", "-o", "{out}/slides.html"],
    ["report", "--evidence", "-o", "{out}/proposal.pdf"],
    ["report", "--evidence", "-o", "{out}/proposal.tex"],
    ["report", "--as", "openmetrics", "-o", "{out}/metrics.txt"],
    ["report", "--as", "extrap", "-o", "{out}/extrap.json"],
    ["report", "--as", "mllog", "-o", "{out}/mllog.txt"],
    ["report", "--as", "tensorboard", "-o", "{out}/tensorboard"],
    ["report", "--as", "mlflow", "-o", "{out}/mlflow"],
    ["report", "--as", "wandb", "-o", "{out}/wandb"],
    ["report", "--files", "{out}/files"],
)  # fmt: skip


def draw(random: Any) -> dict[str, Any]:
    kind = random.choice(
        [*REFUSALS, *REFUSALS, "short", "slow", "slow", "moved", "gone", "output", "output"]
    )
    case: dict[str, Any] = {"kind": kind, "step": random.randrange(0, STEPS - 20)}
    if kind in REFUSALS:
        case["names"] = random.choice(["*", "*", "rank-*", "rank-00001*", "*outcome*", "log.txt"])
        case["seconds"] = random.choice([None, random.uniform(0.3, 6.0), random.uniform(2.0, 6.0)])
        case["room"] = random.randrange(0, 3000)
        case["no_files"] = random.random() < 0.5
        if random.random() < 0.15:
            case["step"] = None  # From before the run.
    elif kind == "short":
        case |= {"bytes": random.randrange(1, 200), "seconds": 30.0, "names": "*"}
    elif kind == "slow":
        case |= {"delay": random.uniform(0.05, 4.0), "names": random.choice(["*", "rank-*"])}
        case["seconds"] = random.uniform(1.0, 6.0)
    elif kind == "output":
        case["argv"] = random.choice(OUTPUTS)
        case["fault"] = random.choice(["full", "quota", "read-only", "io"])
        case["room"] = random.choice([0, random.randrange(1, 100_000)])
        case["exists"] = random.random() < 0.5
    return case


def try_case(case: dict[str, Any], folder: Path) -> str | None:
    with _mounted(folder) as fault_file:
        disk = folder / "disk"
        if case["kind"] == "output":
            return _try_output(case, disk, fault_file)
        return _try_run(case, folder, disk, fault_file)


@contextlib.contextmanager
def _mounted(folder: Path):
    """Mount ``folder``/behind on ``folder``/disk; yield the path of the file with the fault."""
    libc = ctypes.CDLL(None, use_errno=True)
    # In a mount namespace of our own, nothing stays mounted when this process ends.
    _unshare()
    for name in ("disk", "behind"):
        (folder / name).mkdir()
    fault_file = folder / "fault.json"
    fault_file.write_text("{}")
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("_fuse.py")),
         str(folder / "disk"), str(folder / "behind"), str(fault_file)],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert server.stdout
        assert server.stdout.readline() == b"mounted\n"
        yield fault_file
    finally:
        libc.umount2(os.fsencode(folder / "disk"), 2)  # MNT_DETACH
        server.kill()
        server.wait()
        server.stdout and server.stdout.close()


@functools.cache
def _unshare() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x20000):  # CLONE_NEWNS
        raise OSError(ctypes.get_errno(), "unshare")
    if libc.mount(b"none", b"/", None, 0x4000 | 0x40000, None):  # MS_REC | MS_PRIVATE
        raise OSError(ctypes.get_errno(), "mount")


def _set(fault_file: Path, **fault: Any) -> None:
    draft = fault_file.with_suffix(".new")
    draft.write_text(json.dumps(fault))
    os.replace(draft, fault_file)


def _fault(case: dict[str, Any]) -> dict[str, Any]:
    fault = {"fault": case["kind"], "names": case.get("names", "*")}
    fault |= {key: case[key] for key in ("room", "bytes", "no_files") if key in case}
    return fault | ({"seconds": case["delay"]} if "delay" in case else {})


def _start(folder: Path, disk: Path, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [SCALEWISE, "run", "study.toml", "-o", str(disk / "out")], cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **variables},
    )  # fmt: skip


def _try_run(case: dict[str, Any], folder: Path, disk: Path, fault_file: Path) -> str | None:
    kind, seconds = case["kind"], case.get("seconds")
    (folder / "steps.py").write_text(PROGRAM)
    (folder / "study.toml").write_text(STUDY)
    behind = folder / "behind"
    if case["step"] is None:
        _set(fault_file, **_fault(case))
    variables = {"SCALEWISE_DISK_PATIENCE": "3"} if kind in REFUSALS and not seconds else {}
    process = _start(folder, disk, **variables)
    began = time.monotonic()
    if case["step"] is not None:
        while process.poll() is None and _steps(behind, 0) < case["step"]:
            if time.monotonic() - began > 60:
                process.kill()
                return f"no step within 60 s: {process.communicate()}"
            time.sleep(0.02)
    if process.poll() is not None and case["step"] is not None:
        return None  # It was too fast for this fault.
    if kind == "moved":
        (disk / "out").rename(disk / "elsewhere")
    elif kind == "gone":
        shutil.rmtree(disk / "out", ignore_errors=True)
    elif case["step"] is not None:
        _set(fault_file, **_fault(case))
    began = time.monotonic()
    if seconds:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=seconds)
        lasted = time.monotonic() - began
        _set(fault_file)
    try:
        stdout, stderr = process.communicate(timeout=90)
    except subprocess.TimeoutExpired:
        kill_left(folder)
        process.kill()
        return f"not over after 90 s: {process.communicate()}"
    said = stdout + stderr
    if "Traceback" in said:
        return f"traceback: {said[-3000:]}"
    if process.returncode not in (0, 3):
        return f"exit code {process.returncode}: {said[-3000:]}"
    time.sleep(0.1)
    if left := kill_left(folder):
        return f"left processes {left}: {said[-1000:]}"
    ended = all(_ended(behind, rank) for rank in (0, 1))
    if process.returncode:
        cause = {
            "moved": ["is gone", "No such file"], "gone": ["is gone", "No such file"],
        }.get(kind, [REFUSALS.get(kind, "?")])  # fmt: skip
        if not any(text in said for text in cause):
            return f"the cause is not named: {said[-3000:]}"
    elif kind in ("moved", "gone") or (not seconds and case.get("names") == "*"):
        return f"it should have failed: {said[-2000:]}"
    elif wrong := _check(disk / "out", behind / "out", case, lasted, events=True):
        return f"{wrong}: {said[-1000:]}"
    _set(fault_file)
    if kind == "moved":
        shutil.rmtree(disk / "out", ignore_errors=True)
        (disk / "elsewhere").rename(disk / "out")
    again = _start(folder, disk)
    stdout, stderr = again.communicate(timeout=90)
    if again.returncode or "Traceback" in stderr:
        return f"running again: exit code {again.returncode}: {(stdout + stderr)[-3000:]}"
    outcomes = (behind / "out").glob("*/outcome.json")
    attempts = [json.loads(path.read_text())["attempt"] for path in outcomes]
    if ended and attempts != [1]:
        return f"what had ended was run again: attempts {attempts}, at first: {said[-2000:]}"
    return _check(disk / "out", behind / "out", case, 0.0, events=False)


def _rank_path(behind: Path, rank: int) -> Path | None:
    return next(iter(behind.rglob(f"rank-{rank:05d}.jsonl")), None)


def _lines(path: Path | None) -> list[dict[str, Any]]:
    lines = []
    for text in path.read_bytes().splitlines() if path else ():
        with contextlib.suppress(ValueError):
            lines.append(json.loads(text))
    return lines


def _steps(behind: Path, rank: int) -> int:
    return max((line["steps"][1] for line in _lines(_rank_path(behind, rank)) if "steps" in line),
               default=0)  # fmt: skip


def _ended(behind: Path, rank: int) -> bool:
    lines = _lines(_rank_path(behind, rank))
    return bool(lines) and "ended" in lines[-1]


def _check(
    disk: Path, behind: Path, case: dict[str, Any], lasted: float, *, events: bool
) -> str | None:
    """Return what is wrong with a finished run."""
    for rank in (0, 1):
        path = _rank_path(behind, rank)
        if not path:
            return f"rank {rank} has no file"
        attempt = json.loads(next(behind.glob("*/outcome.json")).read_text())["attempt"]
        texts = path.read_bytes().splitlines()
        lines = [line for line in _lines(path) if line["attempt"] == attempt]
        if attempt == 1 and len(lines) != len(texts):
            return f"rank {rank} has a torn line"
        done = [line["steps"] for line in lines if "steps" in line]
        expected = 0
        for first, end in done:
            if first != expected:
                return f"rank {rank} has steps {done}"
            expected = end
        if expected != STEPS:
            return f"rank {rank} has {expected} steps"
    done = subprocess.run(
        [SCALEWISE, "measure", str(disk), "--json"], capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    if done.returncode:
        return f"measure: {done.stderr[-2000:]}"
    texts = [path.read_text() for path in behind.rglob("rank-*.jsonl")]
    if not events:
        return None
    concerns_ranks = case.get("names", "*") in ("*", "rank-*", "rank-00001*")
    expected_event = None
    if case["kind"] in REFUSALS and concerns_ranks and lasted > 2.5:
        expected_event = "disk-refused"
        if case["kind"] in ("full", "quota"):  # There was room for some lines.
            expected_event = "disk-refused" if '"disk":' in "".join(texts) else None
    if case["kind"] == "slow" and case["delay"] > 1.2 and lasted > 2.5:
        expected_event = "disk-slow"
    if expected_event and expected_event not in done.stdout:
        return f"measure does not say {expected_event}"
    if '"disk":' in "".join(texts) and "disk-" not in done.stdout:
        return "measure does not report what ranks noted"
    return None


@functools.cache
def _study() -> Path:
    """Return a finished study of the fake machine."""
    from scalewise.frameworks.__main__ import do_train  # ``python -m`` must not find it imported.

    folder = Path(tempfile.mkdtemp(prefix="hunt-disks-study-"))
    spec = StudySpec.from_dict(
        {"name": "fake", "run": {"framework": "fake", "batch": 16, "steps": 60},
         "vary": {"topology": ["1x1", "1x2", "1x4"]}}
    )  # fmt: skip
    write_json(folder / "study.json", spec.to_dict())
    for run in spec.runs():
        write_json(folder / run.id / "spec.json", run.to_dict())
        with contextlib.redirect_stdout(io.StringIO()):
            assert do_train(str(folder / run.id)) == 0
        close(folder / run.id, attempt=1, world=run.topology.world, ended=None)
    return folder


def _try_output(case: dict[str, Any], disk: Path, fault_file: Path) -> str | None:
    verb, *options = case["argv"]
    argv = [verb, str(_study()), *(option.replace("{out}", str(disk)) for option in options)]
    path = Path(argv[-1])
    if case["exists"] and path.suffix:
        path.write_text("before")
    _set(fault_file, fault=case["fault"], room=case["room"])
    stdout, stderr = io.StringIO(), io.StringIO()
    code = 0
    try:
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            sys.argv = ["scalewise", *argv]
            main()
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else 1
    _set(fault_file)
    said = stdout.getvalue() + stderr.getvalue()
    if "Traceback" in said:
        return f"traceback: {said[-2000:]}"
    if code == 0 and case["room"] == 0:
        return f"exit code 0 on a disk that takes nothing: {said[-1000:]}"
    if code and REFUSALS[case["fault"]] not in " ".join(said.split()):
        return f"exit code {code}, the cause is not named: {said[-2000:]}"
    if code and path.suffix:
        now = path.read_text(errors="replace") if path.exists() else None
        if now != ("before" if case["exists"] else None):
            return f"a half file of {len(now or '')} characters was left"
        if left := [each.name for each in disk.iterdir() if each != path]:
            return f"files were left: {left}"
    return None
