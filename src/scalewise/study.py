"""Run a study: start what is missing, take up what was left, say where every run is."""

import fcntl
import json
import shlex
import shutil
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from scalewise import plugins
from scalewise.errors import (
    LaunchError,
    NewerSchema,
    PluginError,
    RecordError,
    RunFailed,
    ScalewiseError,
    SpecError,
)
from scalewise.launch import Job, Launcher, Plan, State
from scalewise.launch.processes import ask
from scalewise.launch.program import digest, engine, program
from scalewise.record import replicas
from scalewise.record.checkpoints import FOLDER
from scalewise.record.close import close, closed, last_word, newest_attempt, rivals
from scalewise.record.files import failure, finished, read_json, read_study
from scalewise.record.log import first_traceback, own_lines
from scalewise.record.write import cannot_write, write_json, write_text
from scalewise.spec import RunSpec, StudySpec, Topology

PAUSE = 0.05
"""Seconds between two looks at a running job."""


class HungUp(KeyboardInterrupt):
    """The terminal is gone, and with it whoever watched."""


class Watcher(Protocol):
    """Someone who is told how a study goes on."""

    def begin(self, todo: int, there: int, asked: str) -> None:
        """``todo`` runs are missing, ``there`` are finished; ``asked`` is what they may take."""
        ...

    def started(self, number: int, run: RunSpec) -> None:
        """A run was started."""
        ...

    def moved(self, run: RunSpec, share: float) -> None:
        """The run has done this share of its steps."""
        ...

    def ended(self, run: RunSpec, cause: str, seconds: float) -> None:
        """The run ended; ``cause`` is empty if it ended well."""
        ...

    def said(self, problem: ScalewiseError) -> None:
        """Something is wrong that does not end the study."""
        ...


def read(path: Path) -> StudySpec:
    """Read a study file."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as why:
        hint = "`scalewise init` writes one"
        raise SpecError(f"there is no study file {path}", hint=hint) from why
    except OSError as why:
        raise SpecError(f"cannot read {path}: {why.strerror}") from why
    except tomllib.TOMLDecodeError as why:
        script = f"your own script: scalewise run --on 1,2 -- {path}"
        hint = script if path.suffix == ".py" else "text needs quotes"
        raise SpecError(f"{path} is not TOML: {why}", hint=hint) from why
    except UnicodeDecodeError as why:
        raise SpecError(f"{path} is not text: {why}", hint="save it as UTF-8") from why
    return settled(StudySpec.from_dict(values))


def of_program(words: Sequence[str], on: str, repeats: int = 1, **fields: Any) -> StudySpec:
    """Return the study of a user's own program on these numbers of devices, such as ``1,2,4``."""
    if not words:
        raise SpecError("no program was given", hint="scalewise run --on 1,2 -- train.py")
    run = {"program": list(words)} | {key: value for key, value in fields.items() if value}
    topologies = _devices_of(on)
    name = _program_name(words)
    values = {"name": name, "run": run, "repeats": repeats, "vary": {"topology": topologies}}
    return settled(StudySpec.from_dict(values))


def _devices_of(on: str) -> list[str]:
    """Read ``1,2,4``, or ``1x4,2x4`` for nodes."""
    parts = [part.strip() for part in on.split(",")]
    for part in parts:
        try:
            Topology.parse(part)
        except SpecError as bad:
            hint = "for example --on 1,2,4; or 1x4,2x4 for nodes"
            raise SpecError(f"--on takes numbers of devices, got {on!r}", hint=hint) from bad
        if parts.count(part) > 1:
            raise SpecError(f"--on names {part} twice", hint="--repeats 3 runs each three times")
    return parts


def _program_name(words: Sequence[str]) -> str:
    """Name a study after its script, module or command."""
    script = program(words).script
    if script is not None and words[0] != "-m":
        return script.stem
    return (words[1].rpartition(".")[2] if words[0] == "-m" else Path(words[0]).name) or "program"


def launched_by(study: StudySpec, name: str | None) -> StudySpec:
    """Return the study for another launcher; settings of the one that it names stay behind."""
    if name is None or name == study.launcher_name:
        return study
    return replace(study, launcher={"name": name})


def settled(study: StudySpec) -> StudySpec:
    """Return the study with the hash of its program's file: another content is another run."""
    words = study.run.get("program")
    if not words or "digest" in study.run or study.run.get("workload"):
        return study
    found = digest(words)
    return replace(study, run={**study.run, "digest": found}) if found else study


def plan(study: StudySpec, folder: Path) -> list[Plan]:
    """Return what would be executed for each run; start nothing."""
    launcher = _launcher(study)
    return [launcher.plan(runs, folder) for runs in launcher.together(study.runs())]


def write_plan(plans: Sequence[Plan], study: StudySpec, scripts: Path) -> list[Path]:
    """Write everything that starting by hand needs; return where the scripts are."""
    launcher = _launcher(study)
    written = []
    for each in plans:
        write_json(each.folder / "study.json", study.to_dict())
        launcher.prepare(each)
        name, text = next(iter(each.files.items()))
        path = scripts / Path(Path(name).parts[0]).with_suffix(Path(name).suffix)
        write_text(path, text)
        written.append(path)
    return written


def asks(study: StudySpec, runs: Sequence[RunSpec]) -> str:
    """Say what runs would take of a shared machine; refuse more than is allowed."""
    return _launcher(study).asks(runs)


def run(
    study: StudySpec, folder: Path, watcher: Watcher, *, again: bool = False, detach: bool = False
) -> None:
    """Start what is missing; ``again``: everything; ``detach``: and leave it to its launcher."""
    launcher = _launcher(study)
    if detach and launcher.at_once == 1:
        raise SpecError(
            f"the {study.launcher_name} launcher starts one run after another, and must stay",
            hint="leave --detach out, or --launcher slurm",
        )
    folder = folder.absolute()
    runs = study.runs()
    todo = [run for run in runs if again or not finished(folder / run.id)]
    check(todo)
    asked = launcher.asks(todo)
    with _alone(folder):
        _refuse_another(study, folder)
        write_json(folder / "study.json", study.to_dict())
        watcher.begin(len(todo), len(runs) - len(todo), asked)
        _tell_of_others(folder, runs, watcher)
        if again:
            for each in todo:
                shutil.rmtree(folder / each.id / FOLDER, ignore_errors=True)
        failed = _carry_out(launcher, todo, folder, watcher, detach=detach)
        _tell_of_strangers([each for each in todo if each not in failed], folder, watcher)
        _tell_failures(failed, runs, folder, watcher)


def _tell_of_strangers(runs: Sequence[RunSpec], folder: Path, watcher: Watcher) -> None:
    """Tell of programs whose ranks know each other, and yet train a model each."""
    for run in runs:
        job = _job(folder / run.id) if run.program else None
        words = (
            [last_word(job.folder, rank, job.attempt) for rank in range(job.world)] if job else []
        )
        if replicas.alone([word.find("facts") or {} for word in words]):
            hint = "is the model wrapped, in DistributedDataParallel or by what it is made with?"
            watcher.said(RecordError(f"{run.title}: {replicas.ALONE}", hint=hint))


def _tell_failures(
    failed: Mapping[RunSpec, str], runs: Sequence[RunSpec], folder: Path, watcher: Watcher
) -> None:
    """Tell of every run that failed, and raise the last.

    A program that is not distributed is measured on one device all the same.
    """
    measured = any(finished(folder / run.id) for run in runs)
    fatal: RunFailed | None = None
    for run, cause in failed.items():
        problem = _failed(run, cause, folder)
        if measured and alone(folder / run.id):
            watcher.said(problem)
            continue
        if fatal:
            watcher.said(fatal)
        fatal = problem
    if fatal:
        raise fatal


def _failed(run: RunSpec, cause: str, folder: Path) -> RunFailed:
    words = first_traceback(own_lines(folder / run.id), cause) if run.program else ""
    hint = "running again starts only what is missing"
    if alone(folder / run.id):
        hint = f"{_way_to_many(run.program)}--on 1 measures it as it is"
    elif "no training step" in cause:
        hint = "tell of its steps with three lines of scalewise.probe, see docs/guides/attach.md"
    elif run.program and "no rank started" in cause and not words:
        hint = (
            "does it train with PyTorch at all, in a Python that has it? "
            "python -I, -E and -S, or a cleared environment, drop the watcher"
        )
    elif "processes trained as" in cause:
        hint = (
            "processes that train together call torch.distributed.init_process_group "
            "with a rank each; one of them alone can be measured"
        )
    elif "of its own" in cause:
        hint = "give it the number as {devices}, for example -- train.py --world-size {devices}"
    return RunFailed(
        f"{run.title} failed: {cause}",
        hint=f"its log is {folder / run.id / 'log.txt'}; {hint}",
        words=words,
    )


def _way_to_many(words: Sequence[str] | None) -> str:
    """Return a hint how a program that trains alone gets many ranks; nothing if unknown."""
    if not words or not words[0].endswith(".py"):
        return ""
    library = engine(Path(words[0]))
    if library in ("lightning", "pytorch_lightning"):
        return (
            "give its Trainer devices= and num_nodes=, for example "
            "-- train.py --devices {devices} --nodes {nodes}; "
        )
    if library:
        return f"start it as {library} says, with {{devices}} or {{world}} for the number; "
    return f"`scalewise port {shlex.quote(words[0])}` shows what is missing; "


def alone(home: Path) -> bool:
    """Say whether a run's program turned out not to be distributed."""
    job = _job(home)
    if not job or rivals(home, job.attempt).exists():
        return False
    return bool(last_word(home, 0, job.attempt).find("alone"))


def _refuse_another(study: StudySpec, folder: Path) -> None:
    """Keep a study out of the folder of another one, and of a later scalewise."""
    try:
        there = read_study(folder)
    except NewerSchema:
        raise
    except RecordError:
        return  # None is there, or none that could be read.
    if there.name != study.name:
        raise SpecError(
            f"{folder} holds the study {there.name!r}, not {study.name!r}",
            hint="give another folder with -o",
        )


def _tell_of_others(folder: Path, runs: Sequence[RunSpec], watcher: Watcher) -> None:
    """Tell of finished runs that the study no longer asks for, and so nobody will show."""
    ours = {run.id for run in runs}
    others = [path for path in folder.glob("*/outcome.json") if path.parent.name not in ours]
    if others:
        several = f"{len(others)} finished runs" if len(others) > 1 else "1 finished run"
        watcher.said(
            RecordError(
                f"{several} in {folder} answered another question (other words, another file), "
                "and measure shows this one",
                hint="-o FOLDER keeps each in a folder of its own",
            )
        )


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """A run whose end is awaited."""

    run: RunSpec
    job: Job
    taken_up: bool
    """Whether an earlier call had started it."""
    began: float


def _carry_out(
    launcher: Launcher, todo: Sequence[RunSpec], folder: Path, watcher: Watcher, *, detach: bool
) -> dict[RunSpec, str]:
    """Start runs, or take up those that an earlier call left; return why some failed.

    Where runs go one after another, nothing more is started after a failure; those
    that a cluster has go on to their ends.
    """
    alone_here = launcher.at_once == 1
    numbers = {run: number for number, run in enumerate(todo, start=1)}
    waiting = launcher.together(todo)
    under_way: list[_UnderWay] = []
    failed: dict[RunSpec, str] = {}
    try:
        while under_way or (waiting and not (failed and alone_here)):
            while waiting and len(under_way) < launcher.at_once and not (failed and alone_here):
                runs = waiting.pop(0)
                for run in runs:
                    watcher.started(numbers[run], run)
                left, missing = _take_up(launcher, runs, folder, watcher)
                under_way += left
                try:
                    under_way += _begin(launcher, missing, folder)
                except LaunchError as refused:
                    if alone_here:
                        raise
                    for run in missing:
                        failed[run] = str(refused)
                        watcher.ended(run, failed[run], 0.0)
            if detach:
                return failed
            for each in list(under_way):
                state = launcher.poll(each.job)
                if state.phase == "running":
                    watcher.moved(each.run, _share_done(each.job))
                    continue
                cause = _end(launcher, each, state)
                under_way.remove(each)
                watcher.ended(each.run, cause, time.monotonic() - each.began)
                if cause:
                    failed[each.run] = cause
            time.sleep(PAUSE if under_way else 0.0)
    except BaseException as reason:
        _give_up(launcher, under_way, reason)
        raise
    return failed


def _take_up(
    launcher: Launcher, runs: Sequence[RunSpec], folder: Path, watcher: Watcher
) -> tuple[list[_UnderWay], list[RunSpec]]:
    """Return what an earlier call left under way, and the runs that must be started."""
    left, missing = [], []
    for run in runs:
        job = _left_open(folder / run.id)
        phase = launcher.poll(job).phase if job else "ended"
        if job and phase == "running":
            left.append(_UnderWay(run, job, taken_up=True, began=time.monotonic()))
            continue
        if job and phase == "stuck":
            launcher.cancel(job)
        elif job and not _close(job, None, ""):
            watcher.ended(run, "", 0.0)  # It ended well while nobody watched.
            continue
        missing.append(run)
    return left, missing


def _begin(launcher: Launcher, runs: Sequence[RunSpec], folder: Path) -> list[_UnderWay]:
    """Start runs that belong together."""
    if not runs:
        return []
    began = time.monotonic()
    jobs = launcher.submit(launcher.plan(runs, folder))
    return [_UnderWay(run, job, taken_up=False, began=began) for run, job in zip(runs, jobs)]


def _end(launcher: Launcher, one: _UnderWay, state: State) -> str:
    """Close a run that has ended, or must; return why it failed, if so."""
    ended = None if one.taken_up else time.time()
    if state.phase == "stuck":
        launcher.cancel(one.job, stuck=True)
    job = _newest(one.job)
    if finished(job.folder) and closed(job.folder, job.attempt):
        return ""  # It said so itself.
    try:
        cause = _close(job, ended, state.cause, state)
    except RecordError as full:
        cause = str(full)  # The other runs may have room.
    if cause or one.run.program:
        launcher.cancel(one.job)  # Whatever outlived its end.
    return cause


def _give_up(launcher: Launcher, under_way: Sequence[_UnderWay], reason: BaseException) -> None:
    """End what is under way, and say why in its folder; a cluster's jobs outlive a terminal."""
    if isinstance(reason, HungUp) and launcher.at_once > 1:
        return
    why = "ended by the user" if isinstance(reason, KeyboardInterrupt) else f"given up: {reason}"
    try:
        for each in under_way:
            launcher.cancel(each.job)
    finally:
        for each in under_way:
            _close(each.job, None, why)


def _close(job: Job, ended: float | None, why: str, state: State | None = None) -> str:
    return close(
        job.folder,
        attempt=job.attempt,
        world=job.world,
        ended=ended,
        why=why,
        killed=state.killed if state else {},
        exits=state.exits if state else {},
    )


def _left_open(home: Path) -> Job | None:
    """Return the job whose end an earlier, interrupted call has not seen, if any."""
    job = _job(home)
    return job if job and not closed(home, job.attempt) else None


def _job(home: Path) -> Job | None:
    if not (home / "job.json").exists():
        return None
    name = read_json(home / "job.json")
    return _newest(Job(home, name.pop("attempt"), name.pop("world"), name))


def _newest(job: Job) -> Job:
    """Return the job with its last attempt: one may start its ranks again by itself."""
    return replace(job, attempt=newest_attempt(job.folder, job.attempt))


def _share_done(job: Job) -> float:
    job = _newest(job)
    word = last_word(job.folder, 0, job.attempt)
    steps, whole = word.find("steps"), word.find("of")
    return float(steps[1] / whole) if steps and whole else 0.0


def check(runs: Sequence[RunSpec]) -> None:
    """Refuse runs that cannot work, before any rank starts."""
    for run in runs:
        plugins.find("frameworks", run.framework)
        if run.program:
            program(run.program)
            continue
        _check_part("workloads", run.workload, run.framework)
        _check_part("strategies", run.strategy, run.framework)
    runs = [run for run in runs if not run.program]
    if not runs:
        return
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump([run.to_dict() for run in runs], file)
        file.flush()
        for answer in ask("check", file.name):
            if answer:
                raise SpecError(answer["problem"], hint=answer["hint"])


def _check_part(kind: plugins.Kind, name: str | None, framework: str) -> None:
    """Refuse a name its framework has not; a framework without such parts takes any."""
    if parts := plugins.corner(kind, framework):
        if name is None:
            one = plugins.ONE_OF[kind]
            raise SpecError(
                f"a {framework} run needs a {one}", hint=f"there are: {', '.join(parts)}"
            )
        plugins.find(kind, name, framework=framework)


@dataclass(frozen=True, slots=True)
class Status:
    """Where one run is."""

    run: RunSpec
    phase: Literal["finished", "running", "failed", "missing"]
    cause: str = ""


def status(folder: Path) -> list[Status]:
    """Say where every run of a study is; change nothing."""
    study = read_study(folder)
    launcher = _launcher(study)
    return [_status(launcher, run, folder.absolute() / run.id) for run in study.runs()]


def cancel(folder: Path) -> list[RunSpec]:
    """End every run of a study that is under way; return them."""
    study = read_study(folder)
    launcher = _launcher(study)
    ended = []
    for run in study.runs():
        job = _left_open(folder.absolute() / run.id)
        if job and launcher.poll(job).phase != "ended":
            launcher.cancel(job)
            _close(job, None, "ended by the user")
            ended.append(run)
    return ended


def _status(launcher: Launcher, run: RunSpec, home: Path) -> Status:
    job = _job(home)
    state = launcher.poll(job) if job and not closed(home, job.attempt) else None
    if job and state and state.phase == "running":
        return Status(run, "running", state.note or f"{_share_done(job):.0%}")
    if finished(home):
        return Status(run, "finished")
    if _left_open(home):
        return Status(run, "failed", "its end was not seen; `scalewise run` takes it up")
    if cause := failure(home):
        return Status(run, "failed", cause)
    return Status(run, "missing")


def _launcher(study: StudySpec) -> Launcher:
    try:
        kind = plugins.load("launchers", study.launcher_name)
    except PluginError as unknown:
        raise SpecError(str(unknown), hint=unknown.hint) from unknown
    launcher: Launcher = kind(study.launcher)
    return launcher


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep a second ``run`` out of this folder while one is at work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as why:
        raise cannot_write(folder, why) from why
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as busy:
            raise LaunchError(
                f"another scalewise is running this study in {folder}",
                hint="wait for it, or end it with Ctrl-C",
            ) from busy
        except OSError:
            pass  # A file system without locks: go on unguarded.
        yield
