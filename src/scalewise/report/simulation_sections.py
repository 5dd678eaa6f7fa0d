"""A simulated step on many devices: as a section, and as JSON."""

from scalewise.analysis.simulate import PHASES, SimulatedStep, Simulation
from scalewise.report.formats import dump_json, pick
from scalewise.report.tables import (
    NONE,
    Section,
    columns_by_key,
    integer,
    make_table,
    milliseconds,
    number,
    percent,
)
from scalewise.report.text.doubts import alert_lines, doubt_values, note_texts
from scalewise.report.text.simulation import describe_note, describe_reach, simulation_sentences

PHASE_HEADINGS = {"exchange": "exposed exchange", "balance": "wait for slowest"}
MIN_SHOWN_SECONDS = 5e-9  # Shorter phases are not shown.


def sections(simulation: Simulation) -> list[Section]:
    """Return one section: simulated steps, sentences on them, and checks against measured runs."""
    unit = simulation.curve.rate_unit
    phase_by_heading = {PHASE_HEADINGS.get(phase, phase): phase for phase in PHASES}
    devices_column = ("devices", lambda r: str(r.topology.world))

    def phase_cell(heading: str, step: SimulatedStep) -> str:
        seconds = step.phases[phase_by_heading[heading]]
        return milliseconds(seconds) if abs(seconds) > MIN_SHOWN_SECONDS else NONE

    tables = (
        make_table("Simulated", simulation.points, [
            devices_column,
            ("nodes", lambda r: integer(r.topology.nodes)),
            ("step ms", lambda r: milliseconds(r.step)),
            (unit, lambda r: number(r.throughput)),
            (f"corrected {unit}", lambda r: number(simulation.corrected_throughput(r))),
            ("efficiency", lambda r: percent(simulation.efficiency(r))),
            ("exchange ms", lambda r: milliseconds(r.communication), "wide"),
            ("exposed ms", lambda r: milliseconds(r.exposed)),
        ], hide_unknown=True),
        make_table("A simulated step, in milliseconds", simulation.points, [
            devices_column,
            *columns_by_key(phase_by_heading, phase_cell),
        ], hide_unknown=True),
        make_table("Compared with measurements", simulation.checks, [
            devices_column,
            ("topology", lambda check: str(check.topology)),
            (f"simulated {unit}", lambda check: number(check.simulated)),
            (f"measured {unit}", lambda check: number(check.measured)),
            ("steps took", lambda check: f"{check.factor:.2f} × as long"),
        ]),
    )  # fmt: skip
    shown = tuple(table for table in tables if table.rows)
    warnings = (
        *map(describe_note, simulation.notes),
        *note_texts(simulation.curve.warnings),
    )
    alerts = tuple(alert_lines(simulation.curve.doubts))
    title = f"{simulation.curve.name}, simulated"
    return [Section(title, simulation_sentences(simulation), shown, warnings, alerts)]


def as_json(simulation: Simulation) -> str:
    """Return the simulation as JSON (docs/reference/json.md)."""
    curve, network = simulation.curve, simulation.network
    document = {
        **pick(curve, "study", "where"),
        "scaling": "weak",  # The batch per device is constant.
        "devices_per_node": simulation.per_node,
        "from": {"run": simulation.run, "topology": str(simulation.origin)},
        "strategy": simulation.strategy,
        "gradients": simulation.work.size,
        "buckets": len(simulation.work.buckets),
        "links": pick(network, "inside", "between"),
        "algorithm": network.algorithm,
        "points": [
            {
                "devices": point.topology.world,
                "topology": str(point.topology),
                **pick(point, "step", "throughput"),
                "anchored": simulation.corrected_throughput(point),
                "efficiency": simulation.efficiency(point),
                **pick(point, "phases", "communication", "exposed"),
                "reach": describe_reach(point),
            }
            for point in simulation.points
        ],
        "checks": [
            {
                "devices": check.topology.world,
                "topology": str(check.topology),
                **pick(check, "simulated", "measured", "factor"),
            }
            for check in simulation.checks
        ],
        "interval": None,  # A simulation has none.
        "sentences": simulation_sentences(simulation),
        "notes": [describe_note(note) for note in simulation.notes],
        **pick(curve, "warnings", "not_correct"),
        "doubts": doubt_values(curve.doubts),
    }
    return dump_json(document)
