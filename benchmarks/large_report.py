"""What a report of large runs costs: processor seconds, memory and the size of the page.

    python benchmarks/large_report.py
    python benchmarks/large_report.py --runs 8 --ranks 256 --steps 500

Plays one simulated run for each of two topologies with the product's own writer, and gives every
other run of the study links to these files, so that 64 runs need the disk of two. Each run is read
as if its files were its own. First the caches are made, as `scalewise run` does at its end; then
the page is written in a process of its own. Exits with 1 when the claim does not hold.
"""

import argparse
import contextlib
import io
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scalewise.frameworks.__main__ import do_train
from scalewise.load_run import cache_runs
from scalewise.record.close import close
from scalewise.record.write import write_json
from scalewise.spec import RunSpec, StudySpec

MAX_SECONDS, MAX_GB, MAX_MB = 60.0, 2.0, 8.0
STRATEGIES = ["one", "two", "three", "four"]  # Of the simulated machine: names only.
LAW = {"jitter": 0.02, "noise": 0.02, "slow": 0.002}

REPORT = """
import sys
from scalewise.cli import main
sys.argv[0] = "scalewise"
try:
    main()
finally:  # The peak of this process alone: rusage would count its parent's too.
    print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def main() -> None:
    """Make the study in a folder of its own, report it, and tell what that took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=64)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--without-caches", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "study"
        study = make_study(asked.runs, asked.ranks, asked.steps)
        play(study, folder)
        if not asked.without_caches:
            before = time.process_time()
            cache_runs(folder)
            each = (time.process_time() - before) / len(study.runs())
            size = max(path.stat().st_size for path in folder.glob("*/cache.json"))
            print(f"a cache: {each:.1f} s of processor time, {size / 1e6:.2f} MB")
        sys.exit(report(folder, len(study.runs())))


def make_study(runs: int, ranks: int, steps: int) -> StudySpec:
    """Return a study of four curves (fewer, if runs are few) with two points of equal devices."""
    topologies = [f"{ranks // size}x{size}" for size in (8, 16)]
    strategies = STRATEGIES[: max(1, runs // len(topologies))]
    return StudySpec.from_dict({
        "name": "large",
        "run": {"framework": "fake", "batch": 16, "steps": steps, "options": LAW},
        "vary": {"topology": topologies, "strategy": strategies},
        "repeats": max(1, runs // len(topologies) // len(strategies)),
    })  # fmt: skip


def play(study: StudySpec, folder: Path) -> None:
    """Play the first run of each topology; link its rank files to the others."""
    write_json(folder / "study.json", study.to_dict())
    played: dict[str, Path] = {}
    for run in study.runs():
        home = folder / run.id
        write_json(home / "spec.json", run.to_dict())
        original = played.setdefault(str(run.topology), home)
        if original is home:
            with contextlib.redirect_stdout(io.StringIO()):
                assert do_train(str(home)) == 0
        else:
            for path in original.glob("rank-*.jsonl"):
                os.link(path, home / path.name)
        write_outcome(run, home)


def write_outcome(run: RunSpec, home: Path) -> None:
    """Close a run as its launcher does."""
    assert not close(home, attempt=1, world=run.topology.world, ended=time.time())


def report(folder: Path, runs: int) -> int:
    """Write the page in a process of its own; return 1 if it took more than claimed."""
    page = folder.parent / "page.html"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    argv = [sys.executable, "-c", REPORT, "report", str(folder), "-o", str(page)]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    gigabytes, megabytes = int(done.stdout.split()[-2]) / 1e6, page.stat().st_size / 1e6
    print(
        f"{runs} runs: {seconds:.1f} s of processor time (limit {MAX_SECONDS:.0f}), "
        f"{gigabytes:.2f} GB (limit {MAX_GB:.0f}), page {megabytes:.1f} MB (limit {MAX_MB:.0f})"
    )
    return int(seconds > MAX_SECONDS or gigabytes > MAX_GB or megabytes > MAX_MB)


if __name__ == "__main__":
    main()
