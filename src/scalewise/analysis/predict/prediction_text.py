"""The sentences of a prediction that advice needs too."""

from scalewise.analysis.number_format import format_count, format_number
from scalewise.analysis.predict.next_measurement import NextMeasurement
from scalewise.analysis.predict.outliers import Outlier


def next_measurement(following: NextMeasurement) -> str:
    """Return which measurement to make next, and its expected effect."""
    nodes = f" ({format_count(following.nodes, 'node')})" if following.nodes else ""
    purpose = ", the first across nodes" if following.unseen else ""
    return (
        f"Measure {following.devices} devices{nodes} next{purpose}: the interval of the "
        f"{following.metric} on {following.target} devices would shrink to about "
        f"{100 * following.shrinks:.0f} % of its width."
    )


def outlier(row: Outlier, unit: str) -> str:
    """Return which row does not fit, and what the other rows predict there."""
    per = "s" if row.metric == "time" else f"{unit}/s"
    return (
        f"{format_count(row.devices)}: {format_number(row.measured)} {per} is not explained by "
        f"the other rows: {row.law or 'they'} predict{'s' if row.law else ''} "
        f"{format_number(row.expected)} {per}"
    )
