"""The worker's verbs: ``python -m scalewise.frameworks VERB ARGUMENT``.

train FOLDER   run this process's ranks of the run in FOLDER
close FOLDER   record how the last attempt at the run in FOLDER ended
check FILE     read a JSON list of runs; answer with the problem of each, or null
about NAME     answer with a framework's version and devices
export FILE    read a JSON request; write a checkpoint's weights for a model without parallelism
data FILE      read a JSON request; make, check or bench a data set, with progress lines
collectives FILE   time collectives between ranks; rank 0 writes the answer to FILE

The answer of check, about, export and data is one line of JSON on stdout. The command line starts
these verbs in child processes and never imports them.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scalewise import plugins
from scalewise.errors import FrameworkMissing, RecordError, ScalewiseError
from scalewise.frameworks import Framework, RankEnded, data_verb
from scalewise.frameworks.loop import Training
from scalewise.frameworks.pickles import describe_failure
from scalewise.frameworks.train_log import Log
from scalewise.probe import Probe
from scalewise.probe.environment import write_environment
from scalewise.probe.heartbeat import Heartbeat
from scalewise.probe.rank_identity import rank_and_world, set_torchrun_variables
from scalewise.record.close import close, closed
from scalewise.record.json_files import read_json
from scalewise.record.log import (
    OURS,
    attempt_offset,
    cancel_reason,
    job_cancel_reason,
    read_process_ends,
)
from scalewise.record.rank_tail import first_launch, newest_attempt, read_tail
from scalewise.record.run_clock import run_clock
from scalewise.record.schema import EARLIER
from scalewise.record.write import SCHEMA, RankFile
from scalewise.spec import RunSpec


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a run, as described by the launcher's environment variables."""

    folder: Path
    number: int
    launched: float
    """Wall-clock time at which the launcher started the first process."""
    first: int
    """Number of the first attempt in the same job, which may restart its ranks several times."""


def do_train(argument: str) -> int:
    """Run this process's ranks; return the exit code."""
    restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    attempt = Attempt(
        folder=Path(argument),
        number=int(os.environ.get("SCALEWISE_ATTEMPT", "1")) + restarts,
        launched=float(os.environ.get("SCALEWISE_LAUNCHED", run_clock().now())),
        first=int(os.environ.get("SCALEWISE_FIRST", os.environ.get("SCALEWISE_ATTEMPT", "1"))),
    )
    identity = None
    try:
        identity = set_torchrun_variables(os.environ)
        spec = _read_spec(attempt.folder)
        framework: Framework = plugins.load("frameworks", spec.framework)()
        launcher = identity.launcher if identity else "direct"
        if framework.clock(spec).simulated:
            attempt = replace(attempt, launched=_simulated_launch(attempt, spec.ranks))
        codes = [
            _run_rank(spec, framework, rank, attempt, launcher) for rank in framework.ranks(spec)
        ]
    except Exception as problem:
        if not isinstance(problem, ScalewiseError):
            traceback.print_exc()
        rank = identity.rank if identity else 0
        failure = _describe(problem)
        with suppress(OSError):  # The log's disk may be full.
            print(f"rank {rank} failed: {failure}", file=sys.stderr, flush=True)
        try:
            line = {"failed": failure, "kind": "error", "at": run_clock().now()}
            RankFile(attempt.folder, rank, attempt.number).line({**line, **_process_identity()})
        except OSError as error:  # For example, the disk is full.
            with suppress(OSError):
                print(f"rank {rank}: {error}", file=sys.stderr, flush=True)
        return 1
    finally:
        _drop_unwritable_output()
    return max(codes)


def _drop_unwritable_output() -> None:
    """Drop what the log's disk refuses, so that Python does not exit with code 120 for it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def do_close(argument: str) -> None:
    """Write how the last attempt at a run ended; a job calls this after its ranks have ended."""
    folder = Path(argument)
    spec = _read_spec(folder)
    attempt = newest_attempt(folder, int(os.environ.get("SCALEWISE_ATTEMPT", "1")))
    log = folder / "log.txt"
    start = attempt_offset(log, attempt)
    killed, exits = read_process_ends(log, start)
    reason = cancel_reason(log, start) or job_cancel_reason(folder, os.environ.get("SLURM_JOB_ID"))
    launched = os.environ.get("SCALEWISE_LAUNCHED")
    if closed(folder, attempt) or reason.endswith(("due to job requeue", "due to preemption")):
        return  # Closed by another process, or Slurm will restart the job.
    try:
        cause = close(
            folder, attempt=attempt, world=spec.ranks, ended=run_clock().now(),
            reason=reason, killed=killed, exits=exits,
            launched=float(launched) if launched else None,
        )  # fmt: skip
    except ScalewiseError as error:
        cause = str(error)
    print(f"{OURS}failed: {cause}" if cause else f"{OURS}finished", flush=True)


def _read_spec(folder: Path) -> RunSpec:
    return RunSpec.from_dict(read_json(folder / "spec.json"))


def _simulated_launch(attempt: Attempt, ranks: int) -> float:
    """Return when an attempt is launched: not before the simulated end of the one before."""
    if attempt.number == attempt.first:
        return attempt.launched
    earlier = [  # The rank that failed may have recorded less than the others.
        read_tail(attempt.folder, rank, attempt.number - 1).latest for rank in range(min(2, ranks))
    ]
    return max(attempt.launched, *(time for time in earlier if time is not None))


def _run_rank(
    spec: RunSpec, framework: Framework, rank: int, attempt: Attempt, launcher: str
) -> int:
    """Run one rank and write its file; return the exit code. ``launcher`` names what set its
    environment variables.
    """
    clock = framework.clock(spec)
    file = RankFile(attempt.folder, rank, attempt.number, buffered=clock.simulated)
    wall_time = attempt.launched + clock.now() if clock.simulated else None  # None: the real time.
    probe = Probe(file, clock, wall_time)
    launch: dict[str, Any] = {"world": spec.ranks, "started": launcher}
    launch |= {"launched": attempt.launched, **({"simulated": True} if clock.simulated else {})}
    probe.note(schema=SCHEMA, rank=rank, **launch, **_process_identity())
    job_launched = min(attempt.launched, first_launch(attempt.folder, rank, attempt.first))
    if job_launched < attempt.launched:  # Earlier attempts in this job took the time between.
        probe.note(span=EARLIER, start=job_launched, end=attempt.launched)
    max_stall_seconds = float(os.environ.get("SCALEWISE_PATIENCE", "inf"))
    heartbeat = None if clock.simulated else Heartbeat(probe, max_stall_seconds)
    log = Log(probe, attempt.launched) if rank == 0 else None
    try:
        session_context = framework.session(spec, rank, probe)  # Imports the framework.
        if rank == 0:
            probe.note(environment=write_environment(attempt.folder, framework.facts()))
        probe.note(span="launch", start=attempt.launched, end=probe.wall())
        with session_context as session:
            stopped_at = Training(spec, session, probe, attempt.folder, log).run()
            memory, state_bytes = session.memory(), session.state_bytes()
            exchange, traffic = session.exchange_measurements(), session.traffic()
            damaged = list(session.damaged()) if spec.checkpoint_every or spec.resume else []
            if log:
                log.print_end(memory, exchange, stopped_at)
    except RankEnded as end:
        _flush_last(probe, heartbeat)
        if end.failed:
            probe.record_failure(end.failed, kind=end.kind)
        file.close()
        return end.code
    except BaseException:
        with suppress(RecordError):
            _flush_last(probe, heartbeat)
        raise
    _flush_last(probe, heartbeat)
    probe.note(
        **({"left": stopped_at} if stopped_at else {"ended": probe.wall()}),
        launched=job_launched,
        simulated=clock.simulated,
        memory=memory,
        held=state_bytes,
        **exchange,
        traffic=traffic,
        **({"damaged": damaged} if damaged else {}),
        flush=round(probe.flush_seconds, 6),
    )
    file.close()
    return 0


def _flush_last(probe: Probe, heartbeat: Heartbeat | None) -> None:
    """Write everything that a rank has measured, as soon as the disk takes it."""
    if heartbeat:
        heartbeat.close()
    probe.flush()
    probe.settle()


def do_check(argument: str) -> None:
    """Print, for each run of a JSON list, null or its problem."""
    answers: list[dict[str, Any] | None] = []
    for values in json.loads(Path(argument).read_text(encoding="utf-8")):
        try:
            spec = RunSpec.from_dict(values)
            plugins.load("frameworks", spec.framework)().check(spec)
            answers.append(None)
        except ScalewiseError as problem:
            missing = isinstance(problem, FrameworkMissing)
            answers.append({"problem": str(problem), "hint": problem.hint, "absent": missing})
        except Exception as problem:
            sentence = f"{values.get('workload')} cannot be built: {_describe(problem)}"
            hint = "check its options and its data"
            answers.append({"problem": sentence, "hint": hint, "absent": False})
    print(json.dumps(answers))


def do_export(argument: str) -> None:
    """Write a checkpoint's weights for a model without parallelism; print what was written."""
    request = json.loads(Path(argument).read_text(encoding="utf-8"))
    try:
        from scalewise.frameworks.torch.checkpoint.weights import export

        answer: dict[str, Any] = export(Path(request["source"]), Path(request["to"]))
    except ScalewiseError as problem:
        answer = {"problem": str(problem), "hint": problem.hint}
    except Exception as problem:
        paths = f"{request['to']} from {request['source']}"
        sentence = f"cannot write {paths}: {_describe(problem)}"
        answer = {"problem": sentence, "hint": "is the checkpoint complete? name an older one"}
    print(json.dumps(answer))


def do_data(argument: str) -> None:
    """Make, check or bench a data set; print progress and the answer."""
    data_verb.answer(json.loads(Path(argument).read_text(encoding="utf-8")))


def do_about(argument: str) -> None:
    """Print a framework's version and the devices that it sees."""
    try:
        facts: dict[str, Any] = plugins.load("frameworks", argument)().facts()
    except FrameworkMissing as missing:
        facts = {"absent": str(missing), "hint": missing.hint}
    except Exception as problem:
        facts = {"problem": _describe(problem)}
    print(json.dumps(facts))


def do_collectives(argument: str) -> None:
    """Time collectives between the ranks that torchrun started."""
    try:
        from scalewise.frameworks.torch.timing.collective_bench import run_bench

        run_bench(Path(argument))
    except Exception as problem:
        sys.exit(f"rank {rank_and_world(os.environ)[0]} failed: {_describe(problem)}")


def _process_identity() -> dict[str, Any]:
    return {"host": os.uname().nodename, "pid": os.getpid()}


def _describe(problem: Exception) -> str:
    if isinstance(problem, ScalewiseError):
        return f"{problem} ({problem.hint})" if problem.hint else str(problem)
    text = str(problem)
    if "weights_only" in text:  # PyTorch's message advises to load the file without protection.
        text = describe_failure(problem)
    return f"{type(problem).__name__}: {text}"


VERBS: dict[str, Callable[[str], int | None]] = {
    verb.__name__.removeprefix("do_"): verb
    for verb in (do_train, do_close, do_check, do_about, do_export, do_data, do_collectives)
}


NAMES_MODULES = ("train", "check", "export", "data")
"""Verbs whose argument may name a user's module."""


def main() -> None:
    """Run the verb that the arguments name."""
    if sys.argv[1:] and sys.argv[1] in NAMES_MODULES:
        with suppress(OSError):  # The working directory may have been removed.
            # Last on the path: a user's module must not shadow any other.
            sys.path.append(os.getcwd())
    if len(sys.argv) != 3 or sys.argv[1] not in VERBS:
        sys.exit(f"{__doc__}")
    sys.exit(VERBS[sys.argv[1]](sys.argv[2]))


if __name__ == "__main__":
    main()
