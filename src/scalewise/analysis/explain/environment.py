"""Where runs were measured: machines, devices, software and settings, as the runs recorded them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scalewise.record.read import RunRecord

FRAMEWORK_KEYS = ("name", "version", "device")
"""Facts of a framework that have fields of their own in ``Environment``."""
FACT_NAMES = {
    "devices": "devices",
    "hosts": "hosts",
    "processors": "processor",
    "cores": "cores per rank",
    "systems": "system",
    "frameworks": "framework",
    "backends": "exchange between ranks",
    "launchers": "started by",
    "pythons": "Python",
    "commits": "commit",
}
"""By field of ``Environment``: what its values are called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The distinct values over all runs of a curve; more than one value means that runs differ."""

    hosts: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    """The framework's names of the devices."""
    processors: tuple[str, ...] = ()
    cores: tuple[str, ...] = ()
    """Processor cores that a rank's process may use."""
    systems: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    frameworks: tuple[str, ...] = ()
    """Name and version: ``torch 2.9.1``."""
    libraries: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Other facts of the framework, such as the versions of CUDA and NCCL."""
    backends: tuple[str, ...] = ()
    """Libraries that exchange data between ranks."""
    launchers: tuple[str, ...] = ()
    """Programs that started the ranks: torchrun, srun, mpirun …"""
    commits: tuple[str, ...] = ()
    """Git commits of the working folder; ``+`` marks uncommitted changes."""
    variables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Environment variables that can change a measurement."""
    runs: int = 0
    started: float | None = None
    """When the first run began, in seconds since 1970."""
    ended: float | None = None
    """When the last run ended."""

    @property
    def facts(self) -> dict[str, tuple[str, ...]]:
        """The values by name, of libraries too; variables are apart."""
        facts: dict[str, tuple[str, ...]] = {}
        for attribute, name in FACT_NAMES.items():
            facts[name] = getattr(self, attribute)
            if attribute == "frameworks":
                facts |= self.libraries
        return facts


def environment_of(records: Sequence[RunRecord]) -> Environment | None:
    """Return where these runs were measured; None without runs."""
    if not records:
        return None
    values = [record.environment for record in records]
    frameworks = [_mapping(value.get("engine")) for value in values]
    ranks = [rank for record in records for rank in record.ranks]
    return Environment(
        hosts=_distinct(rank.host for rank in ranks),
        devices=_distinct(rank.notes.device for rank in ranks),
        processors=_distinct_of(values, "processor"),
        cores=_distinct_of(values, "cores"),
        systems=_distinct_of(values, "system"),
        pythons=_distinct_of(values, "python"),
        frameworks=_framework_names(frameworks),
        libraries=_distinct_by_key(frameworks, without=FRAMEWORK_KEYS),
        backends=_distinct(rank.notes.backend for rank in ranks),
        launchers=_distinct(rank.notes.starter for rank in ranks),
        commits=_distinct_of(values, "commit"),
        variables=_distinct_by_key([_mapping(value.get("variables")) for value in values]),
        runs=len(records),
        started=min(record.started for record in records),
        ended=max(record.ended for record in records),
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _distinct(values: Iterable[Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(value) for value in values if value not in (None, "")))


def _distinct_of(mappings: Sequence[Mapping[str, Any]], key: str) -> tuple[str, ...]:
    return _distinct(mapping.get(key) for mapping in mappings)


def _framework_names(frameworks: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return names with versions."""
    return _distinct(
        " ".join(str(part) for part in (facts["name"], facts.get("version")) if part)
        for facts in frameworks
        if facts.get("name")
    )


def _distinct_by_key(
    mappings: Sequence[Mapping[str, Any]], without: Sequence[str] = ()
) -> dict[str, tuple[str, ...]]:
    """Return the distinct plain values of each key."""
    keys = dict.fromkeys(key for mapping in mappings for key in mapping if key not in without)
    by_key = {
        key: _distinct(
            value
            for mapping in mappings
            if isinstance(value := mapping.get(key), (str, int, float))
        )
        for key in keys
    }
    return {key: values for key, values in by_key.items() if values}
