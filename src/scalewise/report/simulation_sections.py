"""A simulated step on many devices: as a section for people, and as JSON for programs."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scalewise.analysis.simulate import (
    PHASES,
    Link,
    SimulatedStep,
    Simulation,
    simulation_sentences,
)
from scalewise.report.curve_table import NONE, Section, Table, by_devices, number, percent, whole
from scalewise.report.formats import SCHEMA, plain


@dataclass(frozen=True)
class _Row:
    """A simulated number of devices."""

    point: SimulatedStep
    efficiency: float
    anchored: float | None
    warnings: tuple[str, ...] = ()

    @property
    def devices(self) -> int:
        return self.point.topology.world


def sections(found: Simulation) -> list[Section]:
    """Return the simulation: how it came about, the steps, and real ones beside them."""
    unit = f"{found.curve.unit}/s"
    rows = [
        _Row(point, found.efficiency(point), found.corrected_throughput(point))
        for point in found.points
    ]
    tables = (
        by_devices(rows, "Simulated", [
            ("nodes", lambda r: whole(r.point.topology.nodes)),
            ("step ms", lambda r: _ms(r.point.step)),
            (unit, lambda r: number(r.point.throughput)),
            ("with the factor", lambda r: number(r.anchored)),
            ("efficiency", lambda r: percent(r.efficiency)),
            ("exchanging ms", lambda r: _ms(r.point.communication)),
            ("of it exposed", lambda r: _ms(r.point.exposed)),
        ]),
        by_devices(rows, "A simulated step, in milliseconds", [
            (_named(phase), _phase(phase)) for phase in PHASES
        ]),
        Table(
            "Held against what was measured",
            ("devices", "topology", f"simulated {unit}", f"measured {unit}", "steps took"),
            tuple(
                (f"{check.topology.world}", str(check.topology), number(check.simulated),
                 number(check.measured), f"{check.factor:.2f} × as long")
                for check in found.checks
            ),
        ),
    )  # fmt: skip
    shown = tuple(table for table in tables if table.rows)
    warnings = (*found.notes, *found.curve.warnings)
    return [Section(f"{found.curve.name}, simulated", simulation_sentences(found), shown, warnings)]


def _named(phase: str) -> str:
    return {"exchange": "exposed exchange", "balance": "slowest rank"}.get(phase, phase)


def _phase(name: str) -> Callable[[_Row], str]:
    def cell(row: _Row) -> str:
        seconds = row.point.phases[name]
        return _ms(seconds) if abs(seconds) > 5e-9 else NONE

    return cell


def _ms(seconds: float) -> str:
    return number(round(1000 * seconds, 4))


def as_json(found: Simulation) -> str:
    """Return the documented JSON shape."""
    network = found.network
    told: dict[str, Any] = {
        "schema": SCHEMA,
        "study": found.curve.study,
        "where": dict(found.curve.where),
        "scaling": "weak",
        "devices_per_node": found.per_node,
        "from": {"run": found.run, "topology": str(found.origin)},
        "strategy": found.strategy,
        "gradients": plain(found.work.size),
        "buckets": len(found.work.buckets),
        "links": {"inside": _link(network.inside), "between": _link(network.between)},
        "algorithm": network.algorithm,
        "points": [_point(found, point) for point in found.points],
        "checks": [
            {"devices": check.topology.world, "topology": str(check.topology),
             "simulated": check.simulated, "measured": check.measured, "factor": check.factor}
            for check in found.checks
        ],
        "interval": None,
        "sentences": list(simulation_sentences(found)),
        "notes": list(found.notes),
        "warnings": list(found.curve.warnings),
        "not_correct": list(found.curve.not_correct),
    }  # fmt: skip
    return json.dumps(told, indent=1)


def _point(found: Simulation, point: SimulatedStep) -> dict[str, Any]:
    return {
        "devices": point.topology.world,
        "topology": str(point.topology),
        "step": point.step,
        "throughput": plain(point.throughput),
        "anchored": plain(found.corrected_throughput(point)),
        "efficiency": found.efficiency(point),
        "phases": plain(point.phases),
        "communication": point.communication,
        "exposed": point.exposed,
        "reach": point.reach,
    }


def _link(link: Link | None) -> dict[str, float] | None:
    return {"latency": link.latency, "bandwidth": link.bandwidth} if link else None
