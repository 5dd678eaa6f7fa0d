"""Try random faults on scalewise; keep every case that goes wrong in tests/hunt/cases.

    python tests/hunt/hunt.py damaged_folders mutated_inputs --cases 500 --jobs 2 --seed 7
    python tests/hunt/hunt.py --minutes 10

A ground is a module of tests/hunt/grounds:

    draw(random) -> case         a case as JSON, drawn at random
    try_case(case, folder)       None if scalewise did what it should, else what went wrong
    NEEDS                        of "torch", "root", "fuse", "slurm": what a machine must have
    LIMIT                        seconds after which a case counts as a hang
    ALONE                        True if no two of its cases may run at the same time

Case K of a ground is drawn with the seed "GROUND SEED K", so that each can be drawn again.
"""

import argparse
import ast
import hashlib
import importlib
import importlib.util
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent
CASES = HERE / "cases"
sys.path[:0] = [str(HERE / "grounds"), str(HERE.parent / "support")]


def ground_names() -> list[str]:
    """Return the names of all grounds."""
    return sorted(
        path.stem for path in (HERE / "grounds").glob("*.py") if not path.stem.startswith("_")
    )


def load(ground: str) -> ModuleType:
    """Import a ground by its name."""
    return importlib.import_module(ground)


def needs(ground: str) -> tuple[str, ...]:
    """Return what a machine must have for a ground, without importing it."""
    tree = ast.parse((HERE / "grounds" / f"{ground}.py").read_text())
    for line in tree.body:
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "NEEDS":
            return tuple(ast.literal_eval(line.value))
    return ()


def missing_needs(ground: str) -> list[str]:
    """Return what a ground needs and this machine lacks."""
    checks = {
        "torch": lambda: importlib.util.find_spec("torch") is not None,
        "root": lambda: os.geteuid() == 0,
        "fuse": lambda: os.access("/dev/fuse", os.W_OK),
        "slurm": lambda: os.geteuid() == 0 and shutil.which("slurmctld") is not None,
    }
    return [need for need in needs(ground) if not checks[need]()]


def draw(ground: str, seed: int, number: int) -> Any:
    """Draw case ``number`` of a ground."""
    return load(ground).draw(random.Random(f"{ground} {seed} {number}"))


def try_case(ground: str, case: Any) -> str | None:
    """Try a case in a new folder; return what went wrong, None if nothing did."""
    folder = Path(tempfile.mkdtemp(prefix=f"hunt-{ground}-"))
    try:
        wrong: str | None = load(ground).try_case(case, folder)
    except Exception:
        return "the ground failed: " + traceback.format_exc()[-2000:]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return wrong


def _work(ground: str, seed: int, pipe: Connection) -> None:
    """Try the cases whose numbers arrive; answer each with what went wrong."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.setpgid(0, 0)
    while (number := pipe.recv()) is not None:
        case = draw(ground, seed, number)
        pipe.send((case, try_case(ground, case)))


@dataclass
class Worker:
    """A process that tries cases one after the other."""

    process: BaseProcess
    pipe: Connection
    number: int | None = None
    began: float = 0.0

    def give(self, number: int | None) -> None:
        self.number, self.began = number, time.monotonic()
        self.pipe.send(number)

    def end(self) -> None:
        with suppress(OSError):
            os.killpg(self.process.pid or 0, signal.SIGKILL)
        self.process.kill()
        self.process.join()


@dataclass
class Tally:
    """What a hunt in one ground found."""

    ground: str
    seed: int
    tried: int = 0
    wrong: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    """Cases by the value of their key ``kind``."""

    def add(self, case: Any, wrong: str | None) -> None:
        self.tried += 1
        kind = str(case.get("kind", "")) if isinstance(case, dict) else ""
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if wrong:
            self.wrong += 1
            path = keep(self.ground, self.seed, case, wrong)
            print(f"WRONG {path.name}: {wrong}", flush=True)


def keep(ground: str, seed: int, case: Any, wrong: str) -> Path:
    """Write a case that went wrong to the folder of cases; return the path."""
    text = json.dumps(case, sort_keys=True)
    path = CASES / f"{ground}-{hashlib.sha256(text.encode()).hexdigest()[:10]}.json"
    CASES.mkdir(exist_ok=True)
    # A traceback names folders of this machine.
    wrong = re.sub(r'(?<=File ")/[^"]*/', "", wrong)
    values = {"ground": ground, "seed": seed, "wrong": wrong, "case": case}
    path.write_text(json.dumps(values, indent=1) + "\n")
    return path


def kept_cases() -> Iterator[tuple[str, str, Any]]:
    """Yield each kept case: the name of its file, its ground, the case."""
    for path in sorted(CASES.glob("*.json")):
        values = json.loads(path.read_text())
        yield path.stem, values["ground"], values["case"]


def hunt(ground: str, *, seed: int, cases: int, seconds: float, jobs: int) -> Tally:
    """Try cases of a ground until there were enough of them or the time is over."""
    module = load(ground)
    limit = getattr(module, "LIMIT", 60.0)
    jobs = 1 if getattr(module, "ALONE", False) else jobs
    tally = Tally(ground, seed)
    began = shown = time.monotonic()
    numbers = iter(range(cases))
    workers: list[Worker] = []

    def next_number() -> int | None:
        return None if time.monotonic() - began > seconds else next(numbers, None)

    def start() -> None:
        if (number := next_number()) is not None:
            here, there = multiprocessing.Pipe()
            process = multiprocessing.get_context("spawn").Process(
                target=_work, args=(ground, seed, there)
            )
            process.start()
            there.close()
            workers.append(Worker(process, here))
            workers[-1].give(number)

    try:
        for _ in range(jobs):
            start()
        while workers:
            ready = wait([worker.pipe for worker in workers], timeout=1.0)
            for worker in [each for each in workers if each.pipe in ready]:
                try:
                    tally.add(*worker.pipe.recv())
                    worker.give(number := next_number())
                    ended = number is None
                except (EOFError, OSError):
                    tally.add(draw(ground, seed, worker.number or 0), "ended the hunt's process")
                    ended = True
                    start()
                if ended:
                    worker.process.join(5)
                    worker.end()
                    workers.remove(worker)
            for worker in list(workers):
                if time.monotonic() - worker.began > limit:
                    worker.end()
                    workers.remove(worker)
                    tally.add(draw(ground, seed, worker.number or 0), f"not over after {limit} s")
                    start()
            if time.monotonic() - shown > 10:
                shown = time.monotonic()
                print(f"{ground}: {tally.tried} cases, {tally.wrong} wrong", file=sys.stderr)
    finally:
        for worker in workers:
            worker.end()
    passed = time.monotonic() - began
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(tally.kinds.items()) if kind)
    print(
        f"{ground}: {tally.tried} cases, {tally.wrong} wrong, {passed:.0f} s, seed {seed}"
        + (f" ({kinds})" if kinds else ""),
        flush=True,
    )
    return tally


def main(arguments: Sequence[str] | None = None) -> int:
    """Hunt in some grounds; return 1 if a case went wrong."""
    parser = argparse.ArgumentParser(description="Try random faults on scalewise.")
    parser.add_argument("grounds", nargs="*", metavar="GROUND", help=", ".join(ground_names()))
    parser.add_argument("--cases", type=int, default=sys.maxsize, help="how many in each ground")
    parser.add_argument("--minutes", type=float, help="how long, in all grounds together")
    parser.add_argument("--seed", type=int, help="default: a new one each time")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    if options.minutes is None:
        options.minutes = 10.0 if options.cases == sys.maxsize else 1e6
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    if unknown := set(options.grounds) - set(ground_names()):
        parser.error(f"no ground {', '.join(sorted(unknown))}; there are {ground_names()}")
    ready = []
    for ground in options.grounds or ground_names():
        if lacks := missing_needs(ground):
            print(f"{ground}: left out, this machine has no {', '.join(lacks)}", flush=True)
        else:
            ready.append(ground)
    ends = time.monotonic() + 60 * options.minutes
    wrong = 0
    for position, ground in enumerate(ready):
        share = (ends - time.monotonic()) / (len(ready) - position)
        found = hunt(ground, seed=seed, cases=options.cases, seconds=share, jobs=options.jobs)
        wrong += found.wrong
    print(f"again with: python tests/hunt/hunt.py {' '.join(ready)} --seed {seed}", flush=True)
    return 1 if wrong or not ready else 0


if __name__ == "__main__":
    sys.exit(main())
