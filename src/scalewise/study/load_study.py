"""Load a study, and refuse runs that cannot work before any rank starts."""

import json
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from scalewise import plugins
from scalewise.errors import (
    FrameworkMissing,
    LaunchError,
    RecordError,
    SpecError,
    cut,
    parameter,
    shown,
)
from scalewise.files import access_hint, read_file
from scalewise.launch.interpreters import Interpreters
from scalewise.launch.program import detect_framework, parse_program, script_digest
from scalewise.record.study_files import read_study
from scalewise.spec import RunSpec, StudySpec, Topology
from scalewise.user_config import CONFIG_LIMIT, parse_toml
from scalewise.validate import check_type, refuse_unknown_keys, suggest_name

VARIANT_KEYS = ["run", "vary", "launcher", "scaling", "repeats", "full_run"]
"""Keys of a study that its variants may change."""
EXCLUSIVE_FIELDS = ({"epochs", "steps", "samples"}, {"batch", "global_batch"})
"""A run may set only one field of each group, so a variant's field removes the study's."""


def load(path: Path, variant: str | None = None) -> StudySpec:
    """Load a study file, with the changes of its ``[variant.NAME]`` section if one is named."""
    try:
        values = parse_toml(read_file(path, CONFIG_LIMIT))
    except FileNotFoundError as error:
        hint = "`scalewise init` writes one"
        raise SpecError(f"there is no study file {path}", hint=hint) from error
    except OSError as error:
        text = f"cannot read {path}: {error.strerror}"
        raise SpecError(text, hint=access_hint(error)) from error
    except tomllib.TOMLDecodeError as error:
        script = f"your own script: scalewise run --on 1,2 -- {path}"
        hint = script if path.suffix == ".py" else "text needs quotes"
        raise SpecError(f"{path} is not TOML: {cut(str(error), 200)}", hint=hint) from error
    except UnicodeDecodeError as error:
        raise SpecError(
            f"{path} is not text: {cut(str(error), 200)}", hint="save it as UTF-8"
        ) from error
    return with_program_facts(StudySpec.from_dict(apply_variant(values, variant)))


def apply_variant(values: Mapping[str, Any], name: str | None) -> dict[str, Any]:
    """Return a study's values, with the changes of its section ``[variant.NAME]`` if one is named.

    >>> values = {"name": "vit", "run": {"epochs": 5}, "variant": {"short": {"run": {"steps": 9}}}}
    >>> apply_variant(values, "short")
    {'name': 'vit-short', 'run': {'steps': 9}}
    """
    merged = {key: value for key, value in values.items() if key != "variant"}
    variants = values.get("variant", {})
    check_type("variant", variants, Mapping, "a table of variants, such as [variant.cpu.run]")
    for variant, changes in variants.items():
        check_type(f"variant.{variant}", changes, Mapping, "a table")
        refuse_unknown_keys(f"[variant.{variant}]", changes, VARIANT_KEYS)
    if name is None:
        return merged
    if name not in variants:
        choices = f"there are: {', '.join(variants)}" if variants else "it has none"
        hint = suggest_name(name, variants) or choices
        raise SpecError(
            f"study {shown(values.get('name'))} has no variant {shown(name)}", hint=hint
        )
    for key, change in variants[name].items():
        merged[key] = change
        if isinstance(change, Mapping):
            original = values.get(key, {})
            check_type("what a variant changes", original, Mapping, "a table")
            for group in EXCLUSIVE_FIELDS:
                if group & change.keys():
                    original = {field: original[field] for field in original if field not in group}
            merged[key] = {**original, **change}
    return {**merged, "name": f"{merged.get('name')}-{name}"}


def from_program(arguments: Sequence[str], on: str, repeats: int = 1, **fields: Any) -> StudySpec:
    """Return the study of a user's program on these device counts, such as ``1,2,4``."""
    if not arguments:
        raise SpecError("no program was given", hint="scalewise run --on 1,2 -- train.py")
    run = {"program": list(arguments)} | {key: value for key, value in fields.items() if value}
    counts = [count.strip() for count in on.split(",")]
    for count in counts:
        try:
            Topology.parse(count)
        except SpecError as error:
            hint = f"for example {parameter('on', '1,2,4')}; or 1x4,2x4 for nodes"
            problem = f"{parameter('on')} takes device counts, got {shown(on)}"
            raise SpecError(problem, hint=hint) from error
        if counts.count(count) > 1:
            hint = f"{parameter('repeats', 3)} runs each three times"
            raise SpecError(f"{parameter('on')} names {count} twice", hint=hint)
    script = parse_program(arguments).script
    name = script.stem if script else Path(arguments[0]).name
    if arguments[0] == "-m":
        name = arguments[1].rpartition(".")[2]
    values = {"name": name or "program", "run": run, "repeats": repeats}
    return with_program_facts(StudySpec.from_dict({**values, "vary": {"topology": counts}}))


def with_launcher(study: StudySpec, name: str | None) -> StudySpec:
    """Return the study with another launcher; the old launcher's settings are dropped."""
    if name is None or name == study.launcher_name:
        return study
    return replace(study, launcher={"name": name})


def with_full_run(study: StudySpec, full_run: str | None, folder: Path) -> StudySpec:
    """Return the study with this full run, the length of the training that it rehearses; without
    one, with its own or that of an earlier command, which ``folder`` holds.
    """
    if full_run is None and study.full_run is None:
        with suppress(RecordError):  # There may be no study yet.
            full_run = read_study(folder).full_run
    return study if full_run is None else replace(study, full_run=full_run)


def with_program_facts(study: StudySpec) -> StudySpec:
    """Return the study with its script's hash and, unless the study sets it, its framework."""
    arguments = study.run.get("program")
    if not arguments or "digest" in study.run or study.run.get("workload"):
        return study
    facts = {"digest": script_digest(arguments)}  # A run with an edited script is a new run.
    if not {"framework", "start"} & {*study.run, *study.vary}:
        facts["framework"] = detect_framework(arguments)
    detected = {name: value for name, value in facts.items() if value}
    return replace(study, run={**study.run, **detected})


def check(runs: Sequence[RunSpec], pythons: Mapping[str, str]) -> dict[RunSpec, str]:
    """Refuse runs that cannot work; return those whose framework is missing, with the reason."""
    for run in runs:
        plugins.find("frameworks", run.framework)
        if run.program:
            parse_program(run.program)
            if run.framework != "torch" and (run.trace or run.loaders_alone):
                raise SpecError(
                    f"{parameter('trace')} and {parameter('loaders_alone')} need PyTorch, and this "
                    f"program trains with {run.framework}",
                    hint="leave them out",
                )
        else:
            _check_registered("workloads", run.workload, run.framework)
            _check_registered("strategies", run.strategy, run.framework)
    interpreters = Interpreters.load(pythons)
    workload_runs = [run for run in runs if not run.program]
    unavailable: dict[RunSpec, str] = {}
    for framework in dict.fromkeys(run.framework for run in workload_runs):
        framework_runs = [run for run in workload_runs if run.framework == framework]
        answers = _ask_framework(framework_runs, framework, interpreters)
        for run, answer in zip(framework_runs, answers):
            # A missing framework is refused only if no run would remain.
            if answer and (not answer["absent"] or len(unavailable) + 1 == len(runs)):
                raise SpecError(answer["problem"], hint=answer["hint"])
            if answer:
                unavailable[run] = f"{answer['problem']}: {answer['hint']}"
    return unavailable


def _ask_framework(
    runs: Sequence[RunSpec], framework: str, interpreters: Interpreters
) -> list[Any]:
    """Let the framework's Python check runs; return a problem for each run, None if it can work."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump([run.to_dict() for run in runs], file)
        file.flush()
        try:
            answers: list[Any] = interpreters.ask(framework, "check", file.name)
            return answers
        except FrameworkMissing as error:
            problem, hint = str(error), error.hint
        except LaunchError as error:
            if framework not in interpreters.by_framework:
                raise
            problem = f"framework {shown(framework)} has a Python that does not answer: {error}"
            hint = f'give another one: [engines] {framework} = "…"'
    return [{"problem": problem, "hint": hint, "absent": True}] * len(runs)


def _check_registered(kind: plugins.Kind, name: str | None, framework: str) -> None:
    """Refuse a name that is not registered, if a framework has registered any of this kind."""
    if kind == "workloads" and plugins.is_import_path(name or "", framework):
        return
    if registered := plugins.framework_parts(kind, framework):
        if name is None:
            hint = f"there are: {', '.join(registered)}"
            raise SpecError(f"a {framework} run needs a {plugins.SINGULAR[kind]}", hint=hint)
        plugins.find(kind, name, framework=framework)
