"""A simulated step on many devices: as a section, and as JSON."""

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
from scalewise.report.formats import SCHEMA, plain
from scalewise.report.tables import (
    NONE,
    Section,
    Table,
    integer,
    milliseconds,
    number,
    percent,
    table_by_devices,
)

PHASE_HEADINGS = {"exchange": "exposed exchange", "balance": "slowest rank"}


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


def sections(simulation: Simulation) -> list[Section]:
    """Return the simulated steps, how they were computed, and checks against measured runs."""
    unit = f"{simulation.curve.unit}/s"
    rows = [
        _Row(point, simulation.efficiency(point), simulation.corrected_throughput(point))
        for point in simulation.points
    ]
    tables = (
        table_by_devices(rows, "Simulated", [
            ("nodes", lambda r: integer(r.point.topology.nodes)),
            ("step ms", lambda r: milliseconds(r.point.step)),
            (unit, lambda r: number(r.point.throughput)),
            ("with the factor", lambda r: number(r.anchored)),
            ("efficiency", lambda r: percent(r.efficiency)),
            ("exchanging ms", lambda r: milliseconds(r.point.communication)),
            ("of it exposed", lambda r: milliseconds(r.point.exposed)),
        ]),
        table_by_devices(rows, "A simulated step, in milliseconds", [
            (PHASE_HEADINGS.get(phase, phase), _phase_cell(phase)) for phase in PHASES
        ]),
        Table(
            "Held against what was measured",
            ("devices", "topology", f"simulated {unit}", f"measured {unit}", "steps took"),
            tuple(
                (f"{check.topology.world}", str(check.topology), number(check.simulated),
                 number(check.measured), f"{check.factor:.2f} × as long")
                for check in simulation.checks
            ),
        ),
    )  # fmt: skip
    shown = tuple(table for table in tables if table.rows)
    warnings = (*simulation.notes, *simulation.curve.warnings)
    return [
        Section(
            f"{simulation.curve.name}, simulated", simulation_sentences(simulation), shown, warnings
        )
    ]


def _phase_cell(name: str) -> Callable[[_Row], str]:
    def cell(row: _Row) -> str:
        seconds = row.point.phases[name]
        return milliseconds(seconds) if abs(seconds) > 5e-9 else NONE

    return cell


def as_json(simulation: Simulation) -> str:
    """Return the documented JSON shape."""
    network = simulation.network
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "study": simulation.curve.study,
        "where": dict(simulation.curve.where),
        "scaling": "weak",
        "devices_per_node": simulation.per_node,
        "from": {"run": simulation.run, "topology": str(simulation.origin)},
        "strategy": simulation.strategy,
        "gradients": plain(simulation.work.size),
        "buckets": len(simulation.work.buckets),
        "links": {"inside": _link(network.inside), "between": _link(network.between)},
        "algorithm": network.algorithm,
        "points": [_point(simulation, point) for point in simulation.points],
        "checks": [
            {"devices": check.topology.world, "topology": str(check.topology),
             "simulated": check.simulated, "measured": check.measured, "factor": check.factor}
            for check in simulation.checks
        ],
        "interval": None,
        "sentences": list(simulation_sentences(simulation)),
        "notes": list(simulation.notes),
        "warnings": list(simulation.curve.warnings),
        "not_correct": list(simulation.curve.not_correct),
    }  # fmt: skip
    return json.dumps(document, indent=1)


def _point(simulation: Simulation, point: SimulatedStep) -> dict[str, Any]:
    return {
        "devices": point.topology.world,
        "topology": str(point.topology),
        "step": point.step,
        "throughput": plain(point.throughput),
        "anchored": plain(simulation.corrected_throughput(point)),
        "efficiency": simulation.efficiency(point),
        "phases": plain(point.phases),
        "communication": point.communication,
        "exposed": point.exposed,
        "reach": point.reach,
    }


def _link(link: Link | None) -> dict[str, float] | None:
    return {"latency": link.latency, "bandwidth": link.bandwidth} if link else None
