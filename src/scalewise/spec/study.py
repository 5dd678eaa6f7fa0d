"""A study: a base run and the settings that vary, which make a set of runs to compare."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import product
from math import prod
from typing import Any, Literal, get_args

from scalewise.errors import MAX_SHOWN, SpecError, shown
from scalewise.spec.full_run import FullRun
from scalewise.spec.run import RUN_KEYS, RunSpec
from scalewise.validate import check_choice, check_integer, check_type, refuse_unknown_keys

Scaling = Literal["weak", "strong"]

MAX_RUNS = 10_000
MAX_NAME_BYTES = 200
"""Less than the 255 bytes that file systems allow for a folder's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySpec:
    """The settings of a base run, and the values of those that vary."""

    name: str
    run: Mapping[str, Any]
    vary: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Axes: the values of each varied setting; ``options.KEY`` or ``env.KEY`` vary one entry."""
    cases: Sequence[Mapping[str, Any]] = ()
    """Settings that change together: a table for each case; every case has all varied values."""
    scaling: Scaling | None = "weak"
    """weak: a fixed batch per replica; strong: a fixed global batch; None: a user's program."""
    repeats: int = 1
    launcher: Mapping[str, Any] = field(default_factory=dict)
    engines: Mapping[str, str] = field(default_factory=dict)
    """By framework that is not installed beside scalewise: a Python interpreter that has it."""
    full_run: str | None = None
    """How long the real training is that these runs rehearse: ``90 epochs``; see ``FullRun``."""
    certify: bool = False
    """Whether short runs also show that every number of devices learns what one device learns."""

    def __post_init__(self) -> None:
        _check_name(self.name)
        if self.scaling is not None or not self._has_programs:
            check_choice("scaling", self.scaling, get_args(Scaling))
        check_integer("repeats", self.repeats, minimum=1)
        check_type("run", self.run, Mapping, "a table")
        check_type("vary", self.vary, Mapping, "a table of lists")
        check_type("launcher", self.launcher, Mapping, "a table")
        example = 'a table, such as {jax = "envs/jax/bin/python"}'
        check_type("engines", self.engines, Mapping, example)
        for name, python in self.engines.items():
            check_type(f"[engines] {name}", python, str, "the path of a Python")
        if self.full_run is not None:
            FullRun.parse(self.full_run)
        refuse_unknown_keys("[run]", self.run, RUN_KEYS)
        check_type("certify", self.certify, bool, "true or false")
        _check_cases(self.cases)
        for key in self._keys:
            if key in ("repeat", "launcher"):
                hint = "write repeats = 3" if key == "repeat" else "write a [launcher] table"
                raise SpecError(f"{key} cannot be set for a run", hint=hint)
        check_type("options", self.run.get("options", {}), Mapping, "a table")
        for axis, values in self.vary.items():
            _check_axis(axis, values)
        self._check_scaling()
        count = prod(len(values) for values in self.vary.values()) * self.repeats
        count *= len(self.cases) or 1
        if count > MAX_RUNS:
            hint = f"ask for at most {MAX_RUNS:,} at a time"
            raise SpecError(f"a study of {count:,} runs is too large", hint=hint)
        _refuse_duplicates(self.runs())

    @property
    def _keys(self) -> list[str]:
        """The settings of runs that this study gives or varies."""
        return [*self.run, *self.vary, *_case_keys(self.cases)]

    @property
    def _has_programs(self) -> bool:
        return "program" in self._keys

    def _check_scaling(self) -> None:
        if self.scaling is None:
            return
        if self._has_programs:
            hint = "leave scaling out: the batch is observed"
            raise SpecError("a program decides how its batch grows with devices", hint=hint)
        needed, other, other_scaling = (
            ("batch", "global_batch", "strong")
            if self.scaling == "weak"
            else ("global_batch", "batch", "weak")
        )
        keys = {*self._keys}
        if other in keys or needed not in keys:
            given_keys = " and ".join(key for key in (needed, other) if key in keys) or "none"
            raise SpecError(
                f"{self.scaling} scaling holds {needed} fixed, and this study gives {given_keys}",
                hint=f'write {needed}, or scaling = "{other_scaling}"',
            )

    @property
    def launcher_name(self) -> str:
        """The launcher's registered name."""
        return str(self.launcher.get("name", "local"))

    def runs(self) -> tuple[RunSpec, ...]:
        """Return every run of this study, smallest first."""
        choices = [{"launcher": self.launcher_name, **choice} for choice in self._choices()]
        # Runs of the same size stay in the order of the study: the sort is stable.
        runs = sorted(
            (RunSpec.from_dict(choice) for choice in choices),
            key=lambda run: (run.topology.world, run.topology),
        )
        return tuple(replace(run, repeat=n) for run in runs for n in range(self.repeats))

    def _choices(self) -> Iterator[dict[str, Any]]:
        """Yield the settings of a run for every combination of the varied values."""
        for case, *values in product(self.cases or [{}], *self.vary.values()):
            choice = {**self.run, **case}
            for axis, value in zip(self.vary, values):
                table, dot, key = axis.partition(".")
                choice[table] = {**choice.get(table, {}), key: value} if dot else value
            yield choice

    def where(self, run: RunSpec) -> dict[str, Any]:
        """Return the varied settings that distinguish this run's curve from others of the study."""
        settings, values = run.to_dict(), {}
        varied = [*self.vary, *_case_keys(self.cases)]
        for axis in varied:
            if axis not in ("topology", "global_batch"):
                table, dot, key = axis.partition(".")
                values[axis] = settings[table].get(key) if dot else settings[table]
        if "global_batch" in varied:  # A run spec stores only the batch of a replica.
            values["global_batch"] = run.global_batch
        if "start" in varied:
            values["start"] = run.started_by  # What starts the processes, also by default.
        # ``torch.ddp`` in the study is stored as two fields of the run.
        if any("." in str(name) for name in self.vary.get("strategy", ())):
            values["strategy"] = f"{run.framework}.{run.strategy}"
        return values

    def to_dict(self) -> dict[str, Any]:
        """Return every field as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "StudySpec":
        """Build a study from JSON or TOML values; refuse unknown keys."""
        refuse_unknown_keys("study", data, STUDY_KEYS)
        for key in ("name", "run"):
            if key not in data:
                raise SpecError(f"a study needs {key}", hint="`scalewise init` writes an example")
        check_type("run", data["run"], Mapping, "a table")
        if data["run"].get("certify"):  # The certificate's own runs are cases.
            hint = "write certify = true at the top of the file, above [run]"
            raise SpecError("certify is a setting of the study, not of its runs", hint=hint)
        check_type("vary", data.get("vary", {}), Mapping, "a table of lists")
        vary = _flatten_options(data.get("vary", {}))
        _check_cases(data.get("cases", ()))
        keys = {*data["run"], *vary, *_case_keys(data.get("cases", ()))}
        scaling = "strong" if "global_batch" in keys else None if "program" in keys else "weak"
        cases = tuple(data.get("cases", ()))
        return cls(**{"scaling": scaling, **data, "vary": vary, "cases": cases})


STUDY_KEYS = [item.name for item in fields(StudySpec)]


def _check_cases(cases: Any) -> None:
    """Refuse cases that are no list of tables, or have unknown keys."""
    check_type("cases", cases, (list, tuple), "a list of tables, written [[cases]]")
    for case in cases:
        check_type("cases", case, Mapping, "a list of tables, written [[cases]]")
        refuse_unknown_keys("[[cases]]", case, RUN_KEYS)


def _case_keys(cases: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for case in cases for key in case))


def _flatten_options(vary: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``options = {compute = […]}`` as ``"options.compute" = […]``: the same axis."""
    flat = dict(vary)
    if isinstance(options := flat.get("options"), Mapping):
        del flat["options"]
        flat |= {f"options.{key}": values for key, values in options.items()}
    return flat


def _refuse_duplicates(runs: Sequence[RunSpec]) -> None:
    ids: set[str] = set()
    for run in runs:
        if run.id in ids:
            raise SpecError(
                f"the study asks for the same run twice: {run.topology}, batch {run.batch}",
                hint="remove the value that is listed twice",
            )
        ids.add(run.id)


def _check_name(name: Any) -> None:
    check_type("name", name, str, "text in quotes")
    if not name.strip() or name[0] in ".-" or "/" in name or "\\" in name or not name.isprintable():
        hint = "leave out slashes, control characters and a leading dot or dash"
        raise SpecError(f"a study cannot be named {shown(name)}: it also names a folder", hint=hint)
    if len(name.encode()) > MAX_NAME_BYTES:
        hint = f"use at most {MAX_NAME_BYTES} bytes"
        raise SpecError(f"a study's name is too long for a folder: {shown(name)}", hint=hint)


def _check_axis(axis: str, values: Any) -> None:
    """Refuse an axis of an unknown key, or without a list of values."""
    if not axis.startswith(("options.", "env.")):
        refuse_unknown_keys("[vary]", [axis], [*RUN_KEYS, "options.NAME", "env.NAME"])
    if isinstance(values, (str, Mapping)) or not isinstance(values, Sequence) or not values:
        is_plain = isinstance(values, (str, int, float)) and values
        example = json.dumps(values) if is_plain and len(str(values)) <= MAX_SHOWN else "1, 2"
        hint = f"for example {axis} = [{example}]"
        if axis in ("env", "options") and isinstance(values, Mapping) and values:
            hint = f'with quotes: "{axis}.{next(iter(values))}" = [1, 2]'
        raise SpecError(f"an axis needs a list of values, got {axis} = {shown(values)}", hint=hint)
