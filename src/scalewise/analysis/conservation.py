"""Compare what was counted twice in a user's program: steps, samples and seconds must agree.

The worker records both numbers (``Ledgers`` of record/schema.py). A difference that is larger than
what a correct program explains is a doubt, with both numbers.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from scalewise.analysis.measure.doubt import UNKNOWN_ERROR, Doubt, DoubtKind
from scalewise.record.read import RunRecord
from scalewise.record.schema import (
    PAUSES,
    STEPS,
    TRAIN,
    Ledgers,
    SampleLedger,
    StepLedger,
    TimeLedger,
)

LARGE_FACTOR = 1.5
"""From this factor on, two numbers that must agree make the results unusable."""
MIN_REUSE = 2
"""Samples may be used in so many times the usual steps per batch after the last batch, without
being used again on purpose."""
MAX_SAMPLE_SHARE = 0.02
"""A share of the samples that may differ: counted batches and drawn samples are no exact twins."""
MIN_LATER_STEPS = 4
"""So many steps must follow the first one to say that it has more samples than usual."""
MIN_UNEXPLAINED_SECONDS = 1.0
MAX_UNEXPLAINED_SHARE = 0.10
"""Time that no span covers, or several cover, is doubtful from both of these on."""
MAX_PAUSE_RATIO = 4.0
"""Pauses may take so many times the time of the steps, if they interrupt almost every step."""
MIN_PAUSED_SHARE = 0.8
"""Pauses for each step from which on they interrupt almost every step."""
MIN_PAUSED_STEPS = 10
"""Fewer steps are too few to say that pauses interrupt almost every step."""


def conservation_doubts(records: Sequence[RunRecord]) -> list[Doubt]:
    """Return a doubt for each kind of number that does not agree, of the first run and rank that
    has it at a number of devices.
    """
    doubts: dict[tuple[DoubtKind, int], Doubt] = {}
    for record in records:
        devices = record.spec.topology.world
        if record.spec.program and record.ranks[0].outline.unit == STEPS:
            doubts["samples unknown", devices] = Doubt(
                "samples unknown", devices=devices, error=UNKNOWN_ERROR
            )
        if count := record.later_processes:
            doubts["later training", devices] = Doubt(
                "later training", {"count": count}, devices, UNKNOWN_ERROR
            )
        for rank in record.ranks:
            ledgers = rank.notes.ledgers or Ledgers()
            if record.spec.samples_per_step:
                ledgers = replace(ledgers, samples=None)
            for kind, figures, error in _disagreements(ledgers):
                doubt = Doubt(kind, {**figures, "rank": rank.rank}, devices, error)
                doubts.setdefault((kind, devices), doubt)
    return list(doubts.values())


Disagreement = tuple[DoubtKind, Mapping[str, float], float]
"""A kind of doubt, its figures, and the relative error of the results."""


def _disagreements(ledgers: Ledgers) -> Iterator[Disagreement]:
    if ledgers.threads > 1:
        yield "several threads", {"threads": ledgers.threads}, UNKNOWN_ERROR
    if ledgers.steps:
        yield from _step_doubts(ledgers.steps)
    if ledgers.samples and ledgers.steps:
        yield from _sample_doubts(ledgers.samples, ledgers.steps)
        if ledgers.samples.batches:
            yield from _first_step_doubts(ledgers.samples, ledgers.steps)
    if ledgers.time:
        yield from _time_doubts(ledgers.time, ledgers.steps)


def _step_doubts(ledger: StepLedger) -> Iterator[Disagreement]:
    """Find updates of weights that are no recorded steps, or steps that updated nothing."""
    recorded, updates = ledger.recorded, ledger.updates
    if not updates or not recorded:
        return
    # A loop with several optimizers may end between two of them.
    tolerance = 1 if ledger.optimizers > 1 else 0
    figures = {"recorded": recorded, "updates": updates}
    if ledger.optimizers > 1 and abs(recorded - ledger.own_batches) <= tolerance:
        updates = recorded  # One of a GAN's models takes several steps on each batch.
    if recorded < updates - tolerance:
        yield _by_size("steps unaccounted", "some steps unaccounted", figures, updates / recorded)
    # Each optimizer's step may be a step of the loop; a gradient scaler skips some optimizer steps.
    most = max(ledger.calls, ledger.scaler_calls) + ledger.manual
    if recorded > most + tolerance and ledger.calls:
        figures = {"recorded": recorded, "updates": most}
        yield _by_size("steps unaccounted", "some steps unaccounted", figures, recorded / most)
    elif ledger.optimizers > 1:
        if updates + tolerance < recorded < most - tolerance:  # Some count alone, some together.
            nearest = updates if recorded - updates < most - recorded else most
            figures = {"recorded": recorded, "updates": nearest}
            yield "some steps unaccounted", figures, abs(math.log(nearest / recorded))
        elif recorded + ledger.optimizers < ledger.own_batches:
            figures = {"recorded": recorded, "updates": ledger.own_batches, "apart": True}
            yield "some steps unaccounted", figures, UNKNOWN_ERROR


def _sample_doubts(ledger: SampleLedger, steps: StepLedger) -> Iterator[Disagreement]:
    """Find samples that loaders gave for training and that no step has, or the reverse."""
    if not ledger.credited or not ledger.batches:
        return
    batch = ledger.least / ledger.batches
    # Batches that were fetched ahead, or accumulated, when the program ended; and in each pass one
    # that is fetched and not used, where the loop is left.
    per_step = math.ceil(ledger.batches / max(steps.calls, 1))
    unused = 2 + per_step + min(ledger.passes, ledger.batches - ledger.passes)
    share = MAX_SAMPLE_SHARE * ledger.credited
    least = ledger.least - ledger.skipped
    figures = {"credited": ledger.credited, "given": least}
    if ledger.credited < least - batch * unused - share:
        factor = least / ledger.credited
        yield _by_size("samples unaccounted", "some samples unaccounted", figures, factor)
    steps_per_batch = math.ceil(steps.calls / ledger.batches)
    is_reused = ledger.steps_since_fetch > MIN_REUSE * steps_per_batch
    has_sizes = ledger.most > 0
    if ledger.credited > ledger.most + batch + share and has_sizes and not is_reused:
        figures = {"credited": ledger.credited, "given": ledger.most}
        yield "some samples unaccounted", figures, UNKNOWN_ERROR


def _first_step_doubts(ledger: SampleLedger, steps: StepLedger) -> Iterator[Disagreement]:
    """Find a first step with more samples than any other: a batch that was fetched before the
    training, to look at its samples, may count.
    """
    surplus = ledger.first - ledger.later
    is_large = ledger.first >= LARGE_FACTOR * ledger.later > 0
    matters = surplus > MAX_SAMPLE_SHARE * ledger.credited
    if is_large and matters and steps.recorded > MIN_LATER_STEPS:
        given = ledger.credited - surplus
        figures = {"credited": ledger.credited, "given": given, "first": ledger.first}
        yield "some samples unaccounted", figures, math.log(ledger.credited / given)


def _time_doubts(ledger: TimeLedger, steps: StepLedger | None) -> Iterator[Disagreement]:
    """Find time that no span covers, and pauses that interrupt almost every step."""
    spans = ledger.spans
    if TRAIN not in spans:
        return
    covered = sum(spans.values())
    gap = abs(ledger.life - covered)
    if gap > max(MIN_UNEXPLAINED_SECONDS, MAX_UNEXPLAINED_SHARE * ledger.life):
        yield "time unaccounted", {"life": ledger.life, "covered": covered}, UNKNOWN_ERROR
    paused = sum(spans.get(name, 0.0) for name in PAUSES)
    count = ledger.pauses
    recorded = steps.recorded if steps else 0
    is_frequent = recorded >= MIN_PAUSED_STEPS and count >= MIN_PAUSED_SHARE * recorded
    if is_frequent and paused > MAX_PAUSE_RATIO * spans[TRAIN]:
        figures = {"paused": paused, "trained": spans[TRAIN], "pauses": count}
        yield "frequent pauses", figures, UNKNOWN_ERROR


def _by_size(
    blocking: DoubtKind, weakening: DoubtKind, figures: Mapping[str, float], factor: float
) -> Disagreement:
    """Return the doubt for two numbers that differ by a factor."""
    return (blocking if factor >= LARGE_FACTOR else weakening), figures, math.log(factor)
