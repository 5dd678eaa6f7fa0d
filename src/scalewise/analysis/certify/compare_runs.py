"""Compare a run with its reference, step by step, until something differs."""

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import replace

from scalewise.analysis.certify.certificate import Certificate, Checked, Finding
from scalewise.analysis.certify.gradient_cause import gradient_finding, unsynchronised_finding
from scalewise.analysis.certify.layer_difference import (
    LayerDifference,
    common_factor,
    compare_copies,
    compare_layers,
    compare_sketches,
    layers_finding,
    total_norm,
)
from scalewise.analysis.certify.sample_checks import sample_finding, shared_samples_finding
from scalewise.analysis.certify.sketched_run import (
    SketchedRun,
    difference_norm,
    difference_sketch,
    is_finite,
    norm,
)
from scalewise.analysis.certify.tolerance import (
    EXPLAINED_FACTOR,
    MAX_TOLERANCE,
    Tolerance,
    floor_of,
)
from scalewise.analysis.certify.update_cause import update_finding
from scalewise.record.schema import LayerSketch, SketchKind

MIN_COMMON_LAYERS = 0.9
"""With fewer layers of equal names, runs cannot be compared."""
BUFFER_TOLERANCE = 0.01
"""Ranks' buffers may differ by this share; a buffer also changes with every rounded activation."""
CHANGED_SHARE, CHANGED_WEIGHTS = 0.05, 2**-20
"""Weights may change between two steps by this share of the update, and of the weights."""


def certify(
    reference: SketchedRun, reversed_reference: SketchedRun | None, candidate: SketchedRun
) -> Certificate:
    """Return whether the candidate learns what the reference learns. ``reversed_reference`` is the
    reference with its samples in reversed order, which shows what rounding explains.
    """
    if reversed_reference and not (reversed_reference.is_reversed and reversed_reference.steps):
        reversed_reference = None
    comparison = _Comparison(reference, reversed_reference, candidate)
    finding = next(comparison.findings(), None)
    checked = comparison.checked
    if finding is None and not checked.steps:
        finding = Finding(cause="rounding", verdict="cannot tell")
    values = {name: getattr(finding, name) for name in Finding.__slots__} if finding else {}
    return Certificate(
        **{"verdict": "equal", **values},
        reference=reference.label,
        candidate=candidate.label,
        devices=candidate.devices,
        where=candidate.where,
        checked=checked,
        dropout_off=max(candidate.dropout_off, reference.dropout_off),
        partly=candidate.unsupported or reference.unsupported,
    )


class _Comparison:
    """The comparison of two runs; ``checked`` grows while ``findings`` is read."""

    def __init__(
        self,
        reference: SketchedRun,
        reversed_reference: SketchedRun | None,
        candidate: SketchedRun,
    ) -> None:
        self.reference, self.candidate = reference, candidate
        floor = floor_of(reference.precision, candidate.precision)
        self.tolerance = Tolerance(reference, reversed_reference, floor)
        self.checked = Checked(is_learned=self.tolerance.is_learned)
        self.compares_reference = True
        """False from the step on in which the runs see other samples."""

    def findings(self) -> Iterator[Finding]:
        """Yield what differs, in the order in which it would cause what follows."""
        reference, candidate = self.reference, self.candidate
        if missing := self._missing_sketches():
            yield missing
        yield from filter(None, [self._start_over_ranks()])
        for step in candidate.steps:
            yield from filter(None, [shared_samples_finding(candidate, step)])
            if self.compares_reference:
                yield from filter(None, [self._changed_weights(step)])
            yield from filter(None, [self._gradients_over_ranks(step)])
            if self.compares_reference and step in reference.steps:
                if step == candidate.steps[0]:
                    yield from filter(None, [self._layers_without_optimizer()])
                    yield from filter(None, [self._layers_named_differently()])
                yield from self._against_reference(step)
            yield from filter(None, [self._updates_over_ranks(step)])
        yield from filter(None, map(self._buffers, self._buffer_steps()))

    def _against_reference(self, step: int) -> Iterator[Finding]:
        """Yield what differs from the reference at one step."""
        finding, is_comparable = sample_finding(self.candidate, self.reference, step)
        if finding:
            yield finding
        if not is_comparable:
            self.compares_reference = False
            return
        if step == self.candidate.steps[0]:
            yield from filter(None, [self._start_against_reference()])
        for compare in (self._gradients, self._updates_over_ranks, self._updates):
            yield from filter(None, [compare(step)])

    def _missing_sketches(self) -> Finding | None:
        for run in (self.reference, self.candidate):
            if not run.steps:
                figures = {"run": run.label, "reason": run.unsupported}
                return Finding(cause="no sketches", verdict="cannot tell", figures=figures)
        return None

    def _layers_without_optimizer(self) -> Finding | None:
        """Find layers that an optimizer updates in the reference only."""
        updates = [self.reference.first_copies(step, "update") for step in self.reference.steps]
        updated = {name for layers in updates for name in layers if norm(layers[name]) > 0}
        # Of a model that is used and not trained, as for a perceptual loss, both runs say so.
        updated &= {*self.candidate.not_updated} - {*self.reference.not_updated}
        stale = [name for name in updates[0] if name in updated]
        if not stale:
            return None
        step = self.candidate.steps[0]
        figures = {"no_optimizer": True}
        return layers_finding("not updated", "update", step, stale, [*updates[0]], figures)

    def _layers_named_differently(self) -> Finding | None:
        step = self.candidate.steps[0]
        names = self.reference.copies(step, "gradient").keys()
        own = {*self.candidate.copies(step, "weight"), *self.candidate.copies(step, "gradient")}
        common = names & own
        if len(common) >= MIN_COMMON_LAYERS * len(names):
            return None
        only = next(name for name in names if name not in own)
        other = next((name for name in own if name not in names), None)
        figures = {"common": len(common), "layers": len(names), "only": only, "other": other}
        return Finding(cause="other layers", verdict="cannot tell", figures=figures)

    def _start_over_ranks(self) -> Finding | None:
        """Find layers whose weights differ between ranks before the first update."""
        copies = self.candidate.copies(self.candidate.steps[0], "weight")
        floor = floor_of(self.candidate.precision)
        compared = compare_copies(copies, lambda _: floor.relative, 0.0)
        differing = [name for name, (row, _) in compared.items() if row.differs]
        if not differing:
            return None
        row, copy = compared[differing[0]]
        figures = {"ranks": (0, copy.ranks[0]), "difference": row.relative}
        return layers_finding("start weights", "weight", 0, differing, [*compared], figures)

    def _start_against_reference(self) -> Finding | None:
        """Find layers whose weights at the start are not those of the reference."""
        step = self.candidate.steps[0]
        floor = self.tolerance.floor
        rows = compare_layers(
            self.candidate.first_copies(step, "weight"),
            self.reference.first_copies(step, "weight"),
            lambda _: floor.relative,
            floor.absolute,
        )
        differing = [row for row in rows if row.differs]
        if not differing:
            return None
        names = [row.layer for row in differing]
        figures = {"difference": differing[0].relative}
        finding = layers_finding(
            "other weights", "weight", step, names, [row.layer for row in rows], figures
        )
        return replace(finding, verdict="cannot tell")

    def _changed_weights(self, step: int) -> Finding | None:
        """Find layers whose weights are not those that the step before left, although they are in
        the reference.
        """
        changes = _changes_between_steps(self.candidate, step)
        expected = _changes_between_steps(self.reference, step)
        differing = [
            row
            for name, row in changes.items()
            if row.differs and name in expected and not expected[name].differs
        ]
        if not differing:
            return None
        names = [row.layer for row in differing]
        figures = {"difference": max(row.relative for row in differing)}
        finding = layers_finding("changed weights", "weight", step, names, [*changes], figures)
        return replace(finding, factor=common_factor(differing))

    def _gradients_over_ranks(self, step: int) -> Finding | None:
        compared = compare_copies(
            self.candidate.copies(step, "gradient"),
            self._over_ranks("gradient", step),
            floor_of(self.candidate.precision).absolute,
        )
        if not any(row.differs for row, _ in compared.values()):
            return None
        return unsynchronised_finding(self.candidate, self.reference, step, compared)

    def _updates_over_ranks(self, step: int) -> Finding | None:
        compared = compare_copies(
            self.candidate.copies(step, "update"),
            self._over_ranks("update", step),
            floor_of(self.candidate.precision).absolute,
        )
        differing = [name for name, (row, _) in compared.items() if row.differs]
        if not differing:
            return None
        row, copy = compared[differing[0]]
        figures = {"ranks": (0, copy.ranks[0]), "difference": row.relative}
        return layers_finding("updates differ", "update", step, differing, [*compared], figures)

    def _over_ranks(self, kind: SketchKind, step: int) -> Callable[[str], float]:
        """Return how much ranks may differ: as much as runs, because copies need not be bitwise
        equal; where rounding explains everything, by half.
        """
        own = floor_of(self.candidate.precision).relative
        if step not in self.reference.steps:
            return lambda _: max(own, MAX_TOLERANCE if step else own)
        return lambda name: max(own, self.tolerance.relative(step, kind, name) or MAX_TOLERANCE)

    def _gradients(self, step: int) -> Finding | None:
        """Compare gradients with the reference's; note what was compared."""
        gradients = self.candidate.first_copies(step, "gradient")
        reference = self.reference.first_copies(step, "gradient")
        explained = EXPLAINED_FACTOR * self._update_difference(step - 1)

        def allowed(name: str) -> float | None:
            learned = self.tolerance.relative(step, "gradient", name)
            if learned is None or max(learned, explained) > MAX_TOLERANCE:
                return None
            return max(learned, explained)

        rows = compare_layers(gradients, reference, allowed, self.tolerance.floor.absolute)
        if not rows:
            return None
        least = self.tolerance.floor.absolute * total_norm(reference)
        weights = self.candidate.copies(self.candidate.steps[0], "weight")
        missing = [
            name
            for name, sketch in reference.items()
            if norm(sketch) > least and _has_no_gradient(name, gradients, weights)
        ]
        if missing:
            return layers_finding("no gradient", "gradient", step, missing, [*reference], {})
        if any(row.differs for row in rows):
            return gradient_finding(self.candidate, self.reference, step, rows)
        self._note_checked(step, rows)
        return None

    def _update_difference(self, step: int) -> float:
        """Return how much the updates of all layers together differ, relative to their length; 0 if
        the step has no sketches. Later gradients differ because of it.
        """
        updates = self.candidate.first_copies(step, "update")
        reference = self.reference.first_copies(step, "update")
        whole = total_norm(reference)
        both = [(updates[name], reference[name]) for name in reference if name in updates]
        squares = sum(difference_norm(*pair) ** 2 for pair in both if all(map(is_finite, pair)))
        return float(squares**0.5) / whole if whole else 0.0

    def _updates(self, step: int) -> Finding | None:
        if not self.checked.steps or self.checked.steps[-1] != step:
            return None  # The gradients could not be judged.
        return update_finding(self.candidate, self.reference, step, self.tolerance)

    def _note_checked(self, step: int, rows: list[LayerDifference]) -> None:
        nearest = max(rows, key=lambda row: row.excess)
        checked = self.checked
        is_nearest = not checked.steps or nearest.excess > checked.largest / checked.tolerance
        self.checked = replace(
            checked,
            steps=(*checked.steps, step),
            layers=max(checked.layers, len(rows)),
            largest=nearest.relative if is_nearest else checked.largest,
            tolerance=nearest.allowed if is_nearest else checked.tolerance,
            samples=self.candidate.samples_at(step) is not None
            and (checked.samples or not checked.steps),
        )

    def _buffer_steps(self) -> list[int]:
        return sorted(step for step, kind in self.candidate.layers if kind == "buffer")

    def _buffers(self, step: int) -> Finding | None:
        """Find buffers that differ between ranks at the end."""
        compared = compare_copies(
            self.candidate.copies(step, "buffer"), lambda _: self._buffer_tolerance(step), 0.0
        )
        differing = [name for name, (row, _) in compared.items() if row.differs]
        if not differing:
            return None
        row, copy = compared[differing[0]]
        figures = {"ranks": (0, copy.ranks[0]), "difference": row.relative}
        return layers_finding("buffers", "buffer", step, differing, [*compared], figures)

    def _buffer_tolerance(self, step: int) -> float:
        return max(BUFFER_TOLERANCE, floor_of(self.candidate.precision).relative)


def _has_no_gradient(
    name: str, gradients: Mapping[str, LayerSketch], weights: Container[str]
) -> bool:
    """Return whether a layer of the model has no gradient, or one that is exactly zero."""
    return norm(gradients[name]) == 0 if name in gradients else name in weights


def _changes_between_steps(run: SketchedRun, step: int) -> dict[str, LayerDifference]:
    """Return how the change of each layer's weights since the step before differs from that step's
    update, in the copy that differs most; empty unless both steps have sketches.
    """
    before, updates = run.copies(step - 1, "weight"), run.copies(step - 1, "update")
    rows = {}
    for name, copies in run.copies(step, "weight").items():
        compared = [
            compare_sketches(
                name,
                difference_sketch(after.sketch, start.sketch),
                update.sketch,
                CHANGED_SHARE,
                CHANGED_WEIGHTS * norm(start.sketch),
            )
            for after, start, update in zip(
                copies, before.get(name, ()), updates.get(name, ()), strict=False
            )
        ]
        if compared:
            rows[name] = max(compared, key=lambda row: row.excess)
    return rows
