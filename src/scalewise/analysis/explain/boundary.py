"""What it costs to leave the node: the step of a curve at which the network comes in."""

from collections.abc import Mapping, Sequence

from scalewise.analysis.explain.breakdown import MIN_EFFICIENCY_LOSS, Boundary, Breakdown


def find_node_boundary(points: Sequence[Breakdown]) -> Boundary | None:
    """Return where a curve leaves the node; nothing if it was measured on one side alone."""
    inside = [each for each in points if each.nodes == 1]
    beyond = [each for each in points if each.nodes and each.nodes > 1]
    if not inside or not beyond:
        return None
    last = max(inside, key=lambda each: each.devices)
    first = min(beyond, key=lambda each: (each.nodes, each.devices))
    if last.efficiency is None or first.efficiency is None:
        return None
    cause = factor = None
    if last.efficiency - first.efficiency >= MIN_EFFICIENCY_LOSS:
        cause, factor = _worst(last.factors, first.factors)
    return Boundary(
        devices=(last.devices, first.devices),
        nodes=first.nodes or 1,
        efficiency=(last.efficiency, first.efficiency),
        cause=cause,
        factor=factor,
    )


def _worst(
    before: Mapping[str, float | None], after: Mapping[str, float | None]
) -> tuple[str | None, float | None]:
    """Return the cause whose factor falls most, and by what it is multiplied."""
    ratios = {
        cause: now / then
        for cause, now in after.items()
        if now is not None and (then := before.get(cause))
    }
    cause = min(ratios, key=lambda each: ratios[each], default=None)
    return (cause, ratios[cause]) if cause and ratios[cause] < 1 else (None, None)
