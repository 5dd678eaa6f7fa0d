"""Set the wall clock by an hour during a run: no duration, order or patience changes, and it is
reported.

The clock of this machine is not touched: every Python of the run has a ``time.time`` that is moved
by the seconds in a file, and psutil's time of the boot with it, as after a real step.
"""

import contextlib
import json
import os
import random as random_module
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from run_processes import kill_left

LIMIT = 240.0
SCALEWISE = str(Path(sys.executable).with_name("scalewise"))
STEPS = 150
PROGRAM = f"""
import os, sys, time
from pathlib import Path
from scalewise import probe
for step in range({STEPS}):
    if step == 40 and Path("hang").exists():
        time.sleep(1000)
    if step == 40 and Path("fail").exists():
        Path("fail").unlink(missing_ok=True)
        sys.exit("it failed")
    time.sleep(0.02)
    probe.lap("forward")
    probe.step(samples=8)
"""
STUDY = """
name = "clock"
repeats = {repeats}
[run]
program = ["{python}", "steps.py"]
start = "node"
[launcher]
name = "local"
patience = {patience}
[vary]
topology = ["2x1"]
"""
SITE = """
import os, sys, time
from pathlib import Path
SHIFT = Path({path!r})
def shift():
    try:
        return float(SHIFT.read_text() or 0)
    except (OSError, ValueError):
        return 0.0
real_time, real_time_ns = time.time, time.time_ns
time.time = lambda: real_time() + shift()
time.time_ns = lambda: real_time_ns() + int(shift() * 1e9)
class Moved:
    def find_spec(self, name, path=None, target=None):
        if name == "psutil._pslinux":
            sys.meta_path.remove(self)
            import psutil._pslinux as linux
            boot_time = linux.boot_time
            linux.boot_time = lambda: boot_time() + shift()
        return None
sys.meta_path.insert(0, Moved())
"""


def draw(random: random_module.Random) -> dict[str, Any]:
    seconds = random.choice([-1, 1]) * random.uniform(3000, 3700)
    return {
        "kind": random.choice(["run", "run", "back", "adopt", "status", "hang", "failed"]),
        "step": random.randrange(0, STEPS - 60),
        "seconds": round(seconds, 1),
        "patience": random.choice([8.0, 300.0]),
    }


def try_case(case: dict[str, Any], folder: Path) -> str | None:
    kind = case["kind"]
    (folder / "site").mkdir()
    shift_file = folder / "shift"
    (folder / "site" / "sitecustomize.py").write_text(SITE.format(path=str(shift_file)))
    (folder / "steps.py").write_text(PROGRAM)
    patience = 6.0 if kind == "hang" else case["patience"]
    (folder / "study.toml").write_text(
        STUDY.format(repeats=1, patience=patience, python=sys.executable)
    )
    if kind == "hang":
        (folder / "hang").touch()
    if kind == "failed":
        (folder / "fail").touch()
    began = time.monotonic()
    wall_began = time.time()
    process = _start(folder, "run", "study.toml", "-o", "out")
    while process.poll() is None and _steps(folder) < case["step"]:
        if time.monotonic() - began > 60:
            process.kill()
            return f"no step within 60 s: {process.communicate()}"
        time.sleep(0.02)
    shift_file.write_text(str(case["seconds"]))
    if kind == "back":
        time.sleep(1.5)
        shift_file.write_text("0")
    try:
        if kind == "adopt":
            time.sleep(0.2)
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate()
            process = _start(folder, "run", "study.toml", "-o", "out")
        if kind == "status" and process.poll() is None:
            shown = _ask(folder, "status", "out", "--json")
            still = process.poll() is None
            if wrong := _check_status(shown, time.monotonic() - began, running=still):
                return wrong
        stdout, stderr = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        return f"not over: {process.communicate()}"
    finally:
        left = kill_left(folder)
    said = stdout + stderr
    if "Traceback" in said:
        return f"traceback: {said[-3000:]}"
    if left:
        return f"left processes {left}: {said[-1000:]}"
    if kind in ("hang", "failed"):
        expected = "no progress for" if kind == "hang" else "it failed"
        if process.returncode != 3 or expected not in said:
            return f"exit code {process.returncode}, expected {expected!r}: {said[-2000:]}"
        for name in ("hang", "fail"):
            (folder / name).unlink(missing_ok=True)
        shift_file.write_text("0")  # Modification times of files do not move in this ground.
        again = _ask(folder, "run", "study.toml", "-o", "out")
        if again.returncode:
            return f"running again: {again.returncode} {again.stderr[-2000:]}"
    elif process.returncode:
        return f"exit code {process.returncode}: {said[-2000:]}"
    return _check(folder, case, wall_began, time.monotonic() - began)


def _start(folder: Path, *argv: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [SCALEWISE, *argv], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(folder / "site")},
    )  # fmt: skip


def _ask(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    process = _start(folder, *argv)
    stdout, stderr = process.communicate(timeout=120)
    return subprocess.CompletedProcess(argv, process.returncode, stdout, stderr)


def _lines(folder: Path, rank: int) -> list[dict[str, Any]]:
    lines = []
    for path in folder.glob(f"out/*/rank-{rank:05d}.jsonl"):
        for text in path.read_bytes().splitlines():
            with contextlib.suppress(ValueError):
                lines.append(json.loads(text))
    return lines


def _steps(folder: Path) -> int:
    return max((line["steps"][1] for line in _lines(folder, 0) if "steps" in line), default=0)


def _check_status(
    shown: subprocess.CompletedProcess[str], passed: float, *, running: bool
) -> str | None:
    if shown.returncode not in (0, 3) or "Traceback" in shown.stderr:
        return f"status: exit code {shown.returncode}: {shown.stderr[-2000:]}"
    (run,) = json.loads(shown.stdout)["runs"]
    if running and run["phase"] not in ("running", "finished"):
        return f"status says {run}"
    elapsed = run.get("elapsed_seconds") or run.get("elapsed") or 0.0
    if not 0 <= elapsed <= passed + 1:
        return f"status says that {elapsed} s have passed, after {passed:.1f} s"
    return None


def _check(folder: Path, case: dict[str, Any], began: float, passed: float) -> str | None:
    """Return what is wrong with the times of a finished run."""
    (path,) = folder.glob("out/*/outcome.json")
    outcome = json.loads(path.read_text())
    expected_attempt = 2 if case["kind"] in ("hang", "failed") else 1
    if outcome["attempt"] != expected_attempt:
        return f"attempt {outcome['attempt']} is the finished one, not {expected_attempt}"
    intervals = {"the run": (outcome["started"], outcome["ended"])}
    for failed in path.parent.glob("failure-*.json"):
        failure = json.loads(failed.read_text())
        intervals["the failed attempt"] = failure["started"], failure["ended"]
    noted = False
    for rank in (0, 1):
        lines = _lines(folder, rank)
        noted = noted or any("clock_set" in line for line in lines)
        for line in lines:
            if "span" in line:
                intervals[f"{line['span']} of rank {rank}"] = line["start"], line["end"]
            if "ended" in line:
                intervals[f"rank {rank}"] = line["launched"], line["ended"]
    for name, (start, end) in intervals.items():
        if not -0.05 <= end - start <= passed + 0.5:
            return f"{name} took {end - start:.2f} s of {passed:.1f} s"
    if case["kind"] not in ("hang", "failed"):
        for name, (start, end) in intervals.items():
            if not began - 1 <= start <= end + 0.05 <= began + passed + 1:
                return f"{name} went from {start - began:.1f} to {end - began:.1f} s"
    samples = [
        json.loads(text)["at"] for node in path.parent.glob("node-*.jsonl")
        for text in node.read_text().splitlines() if '"at"' in text
    ]  # fmt: skip
    if case["kind"] not in ("hang", "failed") and samples != sorted(samples):
        return "samples of the node are not in order"
    done = _ask(folder, "measure", "out", "--json")
    if done.returncode or "Traceback" in done.stderr:
        return f"measure: {done.stderr[-2000:]}"
    if case["kind"] in ("run", "adopt", "status", "back") and not noted:
        return "no rank noted that the clock was set"
    if noted and expected_attempt == 1 and "clock-set" not in done.stdout:
        return "measure does not say that the clock was set"
    shutil.rmtree(folder / "out")
    return None
