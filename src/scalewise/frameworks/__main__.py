"""The worker's verbs: ``python -m scalewise.frameworks VERB ARGUMENT``.

train FOLDER   play this process's ranks of the run in FOLDER
close FOLDER   say how the last attempt at it ended
check FILE     read a JSON list of runs; answer what is wrong with each
about NAME     answer what an engine sees of this machine
export FILE    read a JSON request; write a checkpoint's weights as the serial model has them
data FILE      read a JSON request; make or check a data set, and say how far it is
collectives FILE   time the exchange between ranks; rank 0 leaves the answer in FILE

Other answers are one line of JSON on stdout. The lab starts these in child processes
and never imports them.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewise import plugins
from scalewise.errors import NoEngine, ScalewiseError
from scalewise.frameworks import Framework
from scalewise.frameworks.loop import Log, train
from scalewise.frameworks.pickles import describe_failure
from scalewise.probe import Probe
from scalewise.probe.environment import environment
from scalewise.probe.heartbeat import Heartbeat
from scalewise.probe.rank_identity import rank_and_world, set_torchrun_variables
from scalewise.record.close import close, closed
from scalewise.record.log import OURS, ends_in, start_in, told_to_end
from scalewise.record.rank_tail import first_launch, newest_attempt
from scalewise.record.spans import EARLIER
from scalewise.record.write import SCHEMA, RankFile, write_json
from scalewise.spec import RunSpec


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a run, as the launcher announced it."""

    folder: Path
    number: int
    launched: float
    """When the first command was started, by the wall clock."""
    first: int
    """The attempt that this one goes on from: its job may start ranks several times."""

    def file(self, rank: int, *, hold: bool = False) -> RankFile:
        """Return the file of a rank, open for appending."""
        return RankFile(self.folder, rank, self.number, hold=hold)


def do_train(argument: str) -> int:
    """Play this process's ranks; return the exit code."""
    restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    attempt = Attempt(
        folder=Path(argument),
        number=int(os.environ.get("SCALEWISE_ATTEMPT", "1")) + restarts,
        launched=float(os.environ.get("SCALEWISE_LAUNCHED", time.time())),
        first=int(os.environ.get("SCALEWISE_FIRST", os.environ.get("SCALEWISE_ATTEMPT", "1"))),
    )
    identity = None
    try:
        identity = set_torchrun_variables(os.environ)
        spec = _read_spec(attempt.folder)
        framework: Framework = plugins.load("frameworks", spec.framework)()
        for rank in framework.ranks(spec):
            _play(spec, framework, rank, attempt, identity.launcher if identity else "direct")
    except Exception as problem:
        if not isinstance(problem, ScalewiseError):
            traceback.print_exc()
        _account(attempt, identity.rank if identity else 0, _sentence(problem))
        return 1
    return 0


def do_close(argument: str) -> int:
    """Close the last attempt at a run, as its job does when its ranks have ended."""
    folder = Path(argument)
    spec = _read_spec(folder)
    attempt = newest_attempt(folder, int(os.environ.get("SCALEWISE_ATTEMPT", "1")))
    log = folder / "log.txt"
    start = start_in(log, attempt)
    killed, exits = ends_in(log, start)
    why = told_to_end(log, start)
    launched = os.environ.get("SCALEWISE_LAUNCHED")
    if closed(folder, attempt) or why.endswith(("due to job requeue", "due to preemption")):
        return 0  # Somebody knew better; or the job goes on when its turn comes again.
    try:
        cause = close(
            folder, attempt=attempt, world=spec.ranks, ended=time.time(),
            reason=why, killed=killed, exits=exits,
            launched=float(launched) if launched else None,
        )  # fmt: skip
    except ScalewiseError as full:
        cause = str(full)
    print(f"{OURS}failed: {cause}" if cause else f"{OURS}finished", flush=True)
    return 0


def _read_spec(folder: Path) -> RunSpec:
    stored = json.loads((folder / "spec.json").read_text(encoding="utf-8"))
    stored.pop("schema")
    return RunSpec.from_dict(stored)


def _play(spec: RunSpec, framework: Framework, rank: int, attempt: Attempt, started: str) -> None:
    """Play one rank from its first line to its last; ``started`` is who told it its place."""
    clock = framework.clock(spec)
    file = attempt.file(rank, hold=clock.simulated)
    wall = attempt.launched + clock.now() if clock.simulated else None
    probe = Probe(file, clock, wall)
    facts = {"world": spec.ranks, "started": started, "launched": attempt.launched}
    probe.note(schema=SCHEMA, rank=rank, **facts, **_me())
    began = min(attempt.launched, first_launch(attempt.folder, rank, attempt.first))
    if began < attempt.launched:
        probe.note(span=EARLIER, start=began, end=attempt.launched)
    patience = float(os.environ.get("SCALEWISE_PATIENCE", "inf"))
    watch = None if clock.simulated else Heartbeat(probe, patience)
    log = Log(probe, attempt.launched) if rank == 0 else None
    try:
        entering = framework.session(spec, rank, probe)  # Imports the engine.
        if rank == 0:
            facts = environment(framework.facts())
            write_json(attempt.folder / "environment.json", facts)
            probe.note(environment=facts)
        probe.note(span="launch", start=attempt.launched, end=probe.wall())
        with entering as session:
            left = train(spec, session, probe, attempt.folder, log)
            memory, held, exchanged = session.memory(), session.held(), session.exchanged()
            traffic = session.traffic()
            damaged = list(session.damaged()) if spec.checkpoint_every or spec.resume else []
            if log:
                log.end(memory, exchanged, left)
    finally:
        if watch:
            watch.close()
        probe.flush()
    how = {"left": left} if left else {"ended": probe.wall()}
    probe.note(
        **how,
        launched=began,
        simulated=clock.simulated,
        memory=memory,
        held=held,
        **exchanged,
        traffic=traffic,
        **({"damaged": damaged} if damaged else {}),
        flush=round(probe.flush_seconds, 6),
    )
    file.close()


def _account(attempt: Attempt, rank: int, failed: str) -> None:
    """Leave the rank's own account of its failure, in its file if that still takes it."""
    print(f"rank {rank} failed: {failed}", file=sys.stderr, flush=True)
    try:
        file = attempt.file(rank)
        file.line({"failed": failed, "kind": "error", "at": time.time(), **_me()})
    except OSError as full:
        print(f"rank {rank}: {full}", file=sys.stderr, flush=True)


def do_check(argument: str) -> int:
    """Answer, for each run of a JSON list, nothing or what is wrong with it."""
    answers: list[dict[str, Any] | None] = []
    for values in json.loads(Path(argument).read_text(encoding="utf-8")):
        try:
            spec = RunSpec.from_dict(values)
            plugins.load("frameworks", spec.framework)().check(spec)
            answers.append(None)
        except ScalewiseError as problem:
            absent = isinstance(problem, NoEngine)
            answers.append({"problem": str(problem), "hint": problem.hint, "absent": absent})
        except Exception as problem:
            words = f"{values.get('workload')} cannot be made of this run: {_sentence(problem)}"
            hint = "look at its options and its data"
            answers.append({"problem": words, "hint": hint, "absent": False})
    print(json.dumps(answers))
    return 0


def do_export(argument: str) -> int:
    """Write weights for the serial model; answer how much was written."""
    asked = json.loads(Path(argument).read_text(encoding="utf-8"))
    try:
        from scalewise.frameworks.torch.checkpoint.weights import export

        answer: dict[str, Any] = export(Path(asked["source"]), Path(asked["to"]))
    except ScalewiseError as problem:
        answer = {"problem": str(problem), "hint": problem.hint}
    except Exception as problem:
        words = f"cannot write {asked['to']} from {asked['source']}: {_sentence(problem)}"
        answer = {"problem": words, "hint": "is the checkpoint whole? name an older one"}
    print(json.dumps(answer))
    return 0


def do_data(argument: str) -> int:
    """Make or check a data set; answer what there is of it."""
    try:
        from scalewise.frameworks.data.data_verb import answer
    except ScalewiseError as missing:
        print(json.dumps({"answer": {"problem": str(missing), "hint": missing.hint}}))
        return 0
    return answer(json.loads(Path(argument).read_text(encoding="utf-8")))


def do_about(argument: str) -> int:
    """Answer an engine's version and what it sees of this machine."""
    try:
        facts: dict[str, Any] = plugins.load("frameworks", argument)().facts()
    except NoEngine as absent:
        facts = {"absent": str(absent), "hint": absent.hint}
    except Exception as problem:
        facts = {"problem": _sentence(problem)}
    print(json.dumps(facts))
    return 0


def do_collectives(argument: str) -> int:
    """Time the exchange between the ranks that torchrun started."""
    try:
        from scalewise.frameworks.torch.timing.collective_bench import run_bench

        run_bench(Path(argument))
    except Exception as problem:
        rank, _ = rank_and_world(os.environ)
        print(f"rank {rank} failed: {_sentence(problem)}", file=sys.stderr, flush=True)
        return 1
    return 0


def _me() -> dict[str, Any]:
    return {"host": os.uname().nodename, "pid": os.getpid()}


def _sentence(problem: Exception) -> str:
    if isinstance(problem, ScalewiseError):
        return f"{problem} ({problem.hint})" if problem.hint else str(problem)
    text = str(problem)
    if "weights_only" in text:  # PyTorch advises to switch its protection off.
        text = describe_failure(problem)
    return f"{type(problem).__name__}: {text}"


VERBS: dict[str, Callable[[str], int]] = {
    "train": do_train,
    "close": do_close,
    "check": do_check,
    "about": do_about,
    "export": do_export,
    "data": do_data,
    "collectives": do_collectives,
}


def main() -> None:
    """Do what the arguments say."""
    with suppress(OSError):  # Somebody may have removed the folder.
        # Last on the path: a study may name a module of the user's, which must not hide any other.
        sys.path.append(os.getcwd())
    match sys.argv[1:]:
        case [verb, argument] if verb in VERBS:
            sys.exit(VERBS[verb](argument))
        case _:
            sys.exit(f"{__doc__}")


if __name__ == "__main__":
    main()
