"""Read what a study asks, and refuse what cannot work."""

import json
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from scalewise import plugins
from scalewise.errors import FrameworkMissing, LaunchError, SpecError
from scalewise.launch.interpreters import Interpreters
from scalewise.launch.program import detect_framework, parse_program, script_digest
from scalewise.spec import RunSpec, StudySpec, Topology
from scalewise.study.variant import apply_variant


def load(path: Path, variant: str | None = None) -> StudySpec:
    """Read a study file, or a variant that it has of itself."""
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
    return with_program_facts(StudySpec.from_dict(apply_variant(values, variant)))


def from_program(words: Sequence[str], on: str, repeats: int = 1, **fields: Any) -> StudySpec:
    """Return the study of a user's own program on these numbers of devices, such as ``1,2,4``."""
    if not words:
        raise SpecError("no program was given", hint="scalewise run --on 1,2 -- train.py")
    run = {"program": list(words)} | {key: value for key, value in fields.items() if value}
    topologies = _parse_device_counts(on)
    name = _program_name(words)
    values = {"name": name, "run": run, "repeats": repeats, "vary": {"topology": topologies}}
    return with_program_facts(StudySpec.from_dict(values))


def _parse_device_counts(on: str) -> list[str]:
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
    script = parse_program(words).script
    if script is not None and words[0] != "-m":
        return script.stem
    return (words[1].rpartition(".")[2] if words[0] == "-m" else Path(words[0]).name) or "program"


def with_launcher(study: StudySpec, name: str | None) -> StudySpec:
    """Return the study for another launcher; settings of the one that it names stay behind."""
    if name is None or name == study.launcher_name:
        return study
    return replace(study, launcher={"name": name})


def with_program_facts(study: StudySpec) -> StudySpec:
    """Return the study with the hash of its program's file: another content is another run.

    And with the framework that its script trains with, unless the study says that.
    """
    words = study.run.get("program")
    if not words or "digest" in study.run or study.run.get("workload"):
        return study
    found = {"digest": script_digest(words)}
    if not {"framework", "start"} & {*study.run, *study.vary}:
        found["framework"] = detect_framework(words)
    told = {name: value for name, value in found.items() if value}
    return replace(study, run={**study.run, **told})


def check(runs: Sequence[RunSpec], pythons: Mapping[str, str]) -> dict[RunSpec, str]:
    """Refuse runs that cannot work, before any rank starts.

    Return those whose engine is not there or unfit, each with a sentence; where that is the
    engine of every run, it is refused too.
    """
    for run in runs:
        plugins.find("frameworks", run.framework)
        if run.program:
            parse_program(run.program)
            _refuse_torch_options(run)
            continue
        if not plugins.is_import_path(run.workload or "", run.framework):
            _check_part("workloads", run.workload, run.framework)
        _check_part("strategies", run.strategy, run.framework)
    engines = Interpreters.of(pythons)
    ours = [run for run in runs if not run.program]
    absent: dict[RunSpec, str] = {}
    for framework in dict.fromkeys(run.framework for run in ours):
        mine = [run for run in ours if run.framework == framework]
        for run, answer in zip(mine, _ask_framework(mine, framework, engines)):
            if answer and (not answer["absent"] or len(absent) + 1 == len(runs)):
                raise SpecError(answer["problem"], hint=answer["hint"])
            if answer:
                absent[run] = f"{answer['problem']}: {answer['hint']}"
    return absent


def _refuse_torch_options(run: RunSpec) -> None:
    """Refuse to look deeper into a program that does not train with PyTorch."""
    if run.framework != "torch" and (run.trace or run.loaders_alone):
        raise SpecError(
            "--trace and --loaders-alone look at PyTorch, and this program trains with "
            f"{run.framework}",
            hint="leave them out",
        )


def _ask_framework(runs: Sequence[RunSpec], framework: str, engines: Interpreters) -> list[Any]:
    """Have an engine's own Python look at its runs; nothing for those that can work."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump([run.to_dict() for run in runs], file)
        file.flush()
        try:
            answers: list[Any] = engines.ask(framework, "check", file.name)
        except FrameworkMissing as why:
            return [{"problem": str(why), "hint": why.hint, "absent": True}] * len(runs)
        except LaunchError as why:
            if framework not in engines.named:
                raise
            broken = f"framework {framework!r} has a Python that does not answer: {why}"
            hint = f'name another: [engines] {framework} = "…"'
            return [{"problem": broken, "hint": hint, "absent": True}] * len(runs)
    return answers


def _check_part(kind: plugins.Kind, name: str | None, framework: str) -> None:
    """Refuse a name its framework has not; a framework without such parts takes any."""
    if parts := plugins.framework_parts(kind, framework):
        if name is None:
            one = plugins.SINGULAR[kind]
            raise SpecError(
                f"a {framework} run needs a {one}", hint=f"there are: {', '.join(parts)}"
            )
        plugins.find(kind, name, framework=framework)
