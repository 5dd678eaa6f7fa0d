"""Kill what belongs to a run of torch ranks on this machine; run it again.

Whatever is killed (a rank, torchrun's agent, a data loader's worker, the sampler, scalewise), when
(as soon as it lives, or a while later): scalewise ends with the documented exit code and names the
cause, no process is left, and the same command again completes exactly what is missing.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import scalewise
from run_processes import kill_left, left, living, read_proc
from scalewise.record.rank_tail import parse_lines

NEEDS = ("torch",)
LIMIT = 600.0
ALONE = True
PATIENCE = 60.0
COMMAND = Path(sys.executable).parent / "scalewise"
STEPS = 300
DEADLY = ("SIGKILL", "SIGKILL", "SIGTERM", "SIGSEGV", "SIGABRT", "SIGINT")
LOST_SECONDS = 2.5
"""A rank writes its steps once a second; the rest is for a machine that does other work too."""
SCRIPT = """
import torch, torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
dist.init_process_group("gloo")
data = TensorDataset(torch.randn(2400, 8), torch.randn(2400, 1))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data), num_workers=WORKERS)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x, y in loader:
    optimizer.zero_grad()
    ((model(x) - y) ** 2).mean().backward()
    optimizer.step()
dist.destroy_process_group()
"""


def draw(random: Random) -> Any:
    kind = random.choice(("rank", "rank", "rank", "agent", "agent", "loader", "loader", "sampler",
                          "scalewise", "killed scalewise", "stopped rank"))  # fmt: skip
    deadly = ("SIGINT", "SIGTERM", "SIGHUP") if kind == "scalewise" else DEADLY
    if kind == "loader":  # Python ends a loader on SIGINT in many ways, none with a signal.
        deadly = tuple(name for name in DEADLY if name != "SIGINT")
    return {
        "kind": kind,
        "program": random.random() < 0.3,
        "workers": 1 if kind == "loader" else random.choice((0, 0, 1)),
        "checkpoints": random.random() < 0.5,
        "rank": random.randrange(2),
        "signal": random.choice(deadly),
        "at": "steps" if "stopped" in kind else random.choice(("start", "steps", "steps", "any")),
        "delay": round(random.uniform(0.0, 3.0), 2),
        "twice": random.random() < 0.15,
    }


def try_case(case: Any, folder: Path) -> str | None:
    try:
        return _try(case, folder.resolve())
    finally:
        kill_left(folder.resolve())


def _try(case: Any, folder: Path) -> str | None:
    _write_study(case, folder)
    for _ in range(1 + case["twice"]):
        if wrong := _kill(case, folder):
            return wrong
    return _complete(folder)


def _write_study(case: Any, folder: Path) -> None:
    run: dict[str, Any] = {"topology": "1x2"}
    if case["program"]:
        (folder / "train.py").write_text(SCRIPT.replace("WORKERS", str(case["workers"])))
        run |= {"program": ["train.py"]}
    else:
        run |= {"workload": "mlp", "data": "synthetic:96x8x8", "batch": 4, "steps": STEPS,
                "workers": case["workers"]}  # fmt: skip
        run |= {"checkpoint_every": 50} if case["checkpoints"] else {}
    lines = [f"{key} = {json.dumps(value)}" for key, value in run.items()]
    options = "" if case["program"] else "options = {hidden = [32, 16, 16, 16]}\n"
    (folder / "s.toml").write_text(
        f'name = "kills"\n[launcher]\npatience = {PATIENCE}\n[run]\n'
        + "\n".join(lines)
        + f"\n{options}"
    )


def _start(folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "err.txt").open("wb") as error:
        return subprocess.Popen(
            [COMMAND, "run", "s.toml"], cwd=folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=error, start_new_session=True,
            # The hunt ignores Ctrl-C, which its children would inherit.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            env={**os.environ, "COLUMNS": "2000"},
        )  # fmt: skip


def _kill(case: Any, folder: Path) -> str | None:
    """Run the study, kill something, and return what is wrong with what follows."""
    started, kind = _start(folder), case["kind"]
    role = "agent" if "scalewise" in kind else kind.removeprefix("stopped ")
    target = _wait_for(started, folder, role, case)
    killed = target is not None
    number = signal.Signals[case["signal"]]
    if target is not None:
        time.sleep(case["delay"] * {"start": 0.1, "steps": 0.5, "any": 3.0}[case["at"]])
        if kind == "stopped rank":
            number = signal.SIGSTOP
        if "scalewise" in kind:
            target = started.pid
            number = signal.SIGKILL if kind == "killed scalewise" else number
        killed = started.poll() is None and (target in living(folder) or target == started.pid)
        if killed:
            with suppress(ProcessLookupError):
                os.kill(target, number)
    try:
        code = started.wait(240.0)
    except subprocess.TimeoutExpired:
        started.kill()
        return f"scalewise did not end within 240 s: {_said(folder)}"
    said = _said(folder)
    what = f"{kind} {number.name}, code {code}: {said[-700:]}"
    if "Traceback" in said and not case["program"]:  # A program's own traceback is shown.
        return f"a traceback: {what}"
    if kind == "killed scalewise":
        return None  # Its ranks go on; the next command joins them.
    if remains := left(folder, 5.0):
        return f"processes are left: {remains}; {what}"
    if not killed or kind == "sampler":
        return None if code == 0 else what
    if kind == "scalewise":
        return None if code in (0, 130) else what
    if code == 0 and _finished(folder):
        return None  # It was killed after its work.
    if code != 3:
        return what
    return _unnamed(case, number, said, str(target), what) or _lost(folder)


def _unnamed(case: Any, number: signal.Signals, said: str, pid: str, what: str) -> str | None:
    """Return what the message does not name of the cause."""
    if case["kind"] == "agent":
        words = [rf"torchrun's agent \({pid}\) was killed by {number.name}|agent.*{number.name}"]
    elif case["kind"] == "loader":
        words = [rf"a data loader worker of rank {case['rank']}\b"]
        words += [rf"was killed by {number.name}"]
    else:
        words = [rf"rank {case['rank']}\b"]
        how = rf"{number.name}|ended without an error message"
        if number == signal.SIGINT:
            how += "|KeyboardInterrupt|code 1"
        words += [] if case["kind"] == "stopped rank" else [how]
    missing = [each for each in words if not re.search(each, said)]
    return f"the cause is not named ({missing}): {what}" if missing else None


def _lost(folder: Path) -> str | None:
    """Compare the last steps that both ranks wrote: they do each step together."""
    done = []
    for rank in range(2):
        lines = [line for line in _lines(folder, rank) if "steps" in line]
        done.append([second for line in lines for second in line["each"]["seconds"]])
    short, long = sorted(done, key=len)
    missing = sum(long[len(short) :])
    return f"{missing:.1f} s of steps are lost" if missing > LOST_SECONDS else None


def _complete(folder: Path) -> str | None:
    """Run the study again, and return what is not as after a run without a kill."""
    for _ in range(3):
        started = _start(folder)
        try:
            code = started.wait(240.0)
        except subprocess.TimeoutExpired:
            started.kill()
            return f"running again did not end within 240 s: {_said(folder)}"
        # A run that went on alone after its scalewise was killed may be closed as it ended.
        if code == 0:
            break
    said = _said(folder)
    if code or "Traceback" in said:
        return f"running again: code {code}: {said[-700:]}"
    if remains := left(folder, 5.0):
        return f"processes are left after running again: {remains}"
    for rank in range(2):
        begun = [line["attempt"] for line in _lines(folder, rank, every=True) if "schema" in line]
        if len(begun) != len(set(begun)):
            return f"an attempt of rank {rank} was started twice: {begun}"
        steps = max(
            (line["steps"][1] for line in _lines(folder, rank) if "steps" in line), default=0
        )
        if steps != STEPS and not any("resumed" in line for line in _lines(folder, rank)):
            return f"rank {rank} has {steps} of {STEPS} steps"
    points = scalewise.measure(folder / "runs" / "kills").points
    return None if [point.devices for point in points] == [2] else f"measured: {points}"


def _lines(folder: Path, rank: int, *, every: bool = False) -> list[Any]:
    """Return the lines of a rank: of its newest attempt, or of all."""
    lines: list[Any] = []
    for path in folder.glob(f"runs/kills/*/rank-{rank:05d}.jsonl"):
        lines = list(parse_lines(path.read_bytes().splitlines()))
    return lines if every else [each for each in lines if each["attempt"] == lines[-1]["attempt"]]


def _finished(folder: Path) -> bool:
    return any(folder.glob("runs/kills/*/outcome.json"))


def _said(folder: Path) -> str:
    return (folder / "err.txt").read_text(errors="replace")


def _wait_for(started: subprocess.Popen[bytes], folder: Path, role: str, case: Any) -> int | None:
    """Return the id of a process with this role; None if scalewise ends before there is one."""
    while started.poll() is None:
        trained = case["at"] != "steps" or any("steps" in line for line in _lines(folder, 0))
        for pid in living(folder) if trained else ():
            if _role(pid) == (role if role in ("agent", "sampler") else f"{role} {case['rank']}"):
                return pid
        time.sleep(0.1)
    return None


def _role(pid: int) -> str:
    """Return what a process of a run is."""
    words, rank = (
        read_proc(pid, "cmdline"),
        re.search(rb"\0RANK=(\d+)\0", read_proc(pid, "environ")),
    )
    if b"node_sampler" in words:
        return "sampler"
    if b"torch.distributed.run" in words:
        return "agent"
    if not rank:
        return ""
    fields = read_proc(pid, "stat").rpartition(b")")[2].split()
    parent = read_proc(int(fields[1]), "environ") if fields else b""
    is_loader = re.search(rb"\0RANK=(\d+)\0", parent) is not None
    return f"{'loader' if is_loader else 'rank'} {int(rank[1])}"
