"""The receipt of a study as a table: device-hours used, and device-hours lost by cause."""

from collections.abc import Sequence

from scalewise.analysis.explain import LOSSES, Explanation, Receipt
from scalewise.report.tables import NONE, Section, columns_by_key, make_table, number, percent
from scalewise.report.text.spending import receipt_lines

MIN_SHOWN_SHARE = 0.0005
"""A loss below this share of the device-hours is not shown."""
MAX_DEFAULT_LOSSES = 3
"""So many losses, the largest ones of the study, are shown without ``--all``."""

Row = tuple[str, Receipt]
"""A receipt, after the name of the point or study that it covers."""


def section(explained: Sequence[Explanation], study: Receipt) -> Section:
    """Return a row for each point of each curve; the last row is the study with failed runs."""
    rows: list[Row] = []
    for curve in explained:
        where = "".join(f"{key} {value}: " for key, value in curve.where.items())
        rows += [
            (f"{where}{point.devices}", point.receipt) for point in curve.points if point.receipt
        ]
    largest = sorted(study.lost, key=lambda cause: study.lost[cause])[-MAX_DEFAULT_LOSSES:]
    table = make_table(
        "Device-hours: bought, useful, and lost, by cause",
        [*rows, ("study", study)],
        [
            ("devices", lambda row: row[0]),
            ("runs", lambda row: str(row[1].runs), "all"),
            ("bought", lambda row: number(row[1].bought)),
            ("useful", lambda row: number(row[1].useful)),
            ("share", lambda row: percent(row[1].share(row[1].useful))),
            *columns_by_key(
                LOSSES, _lost_hours, lambda cause: "default" if cause in largest else "all"
            ),
            (f"cost {study.currency or ''}".rstrip(), lambda row: number(row[1].cost)),
        ],
        hide_unknown=True,
    )
    lines = receipt_lines(study)
    if explained[0].curve.full_run:
        lines.insert(0, "of the measured runs, not of the full run:")
    return Section(f"{explained[0].study}: receipt", tuple(lines), (table,))


def _lost_hours(cause: str, row: Row) -> str:
    hours = row[1].lost.get(cause, 0.0)
    return number(hours) if abs(row[1].share(hours)) >= MIN_SHOWN_SHARE else NONE
