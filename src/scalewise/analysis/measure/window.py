"""The steady part of one run (training without warm-up), and the parts of its lifetime.

A stretch is a time of training without interruption. It has one ``train`` span per rank.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalewise.analysis.measure.cached_value import cached_value
from scalewise.analysis.measure.intervals import intersect, total_length
from scalewise.errors import NotEnoughData
from scalewise.record.read import RunRecord, Span
from scalewise.record.schema import (
    EARLIER,
    PAUSES,
    SHUTDOWN,
    UNEXPLAINED,
    by_precedence,
    in_order_of_life,
)

MIN_STEADY_STEPS = 20
"""With fewer steady steps, the rate is uncertain and gets a warning."""
MAX_DRIFT = 0.10
"""A larger change of the step time within the steady part is a doubt (see ``Window.drift``)."""
DRIFT_BLOCKS = 10
"""The steady part is divided into so many blocks of steps, to see whether it drifts."""
MIN_DRIFT_SCORE = 4.0
"""Standard errors by which a drift must differ from 0, to be more than noise."""


@dataclass(frozen=True)
class Window:
    """The steady part of a run: its steps and samples, and how long they took."""

    samples: int
    """Samples of all ranks."""
    seconds: float
    step_seconds: NDArray[np.float64]
    """Seconds of each step that was recorded separately, averaged over ranks."""
    first: int
    """The index of the first steady step."""
    steps: int
    """Steady optimizer steps, on each rank."""
    left_out: str
    """What was excluded as warm-up, as text: ``first epoch``."""

    @property
    def throughput(self) -> float:
        """Samples per second of all ranks."""
        return self.samples / self.seconds

    @property
    def drift(self) -> float:
        """By which share the steps became slower (below 0: faster) from the first block to the
        last, by a straight line; 0 if noise explains it. A block counts with its median step.
        """
        logs = np.log(np.maximum(self.step_seconds, 1e-9))
        size = len(logs) // DRIFT_BLOCKS
        if size < 2:
            return 0.0
        medians = np.median(logs[: size * DRIFT_BLOCKS].reshape(DRIFT_BLOCKS, size), axis=1)
        blocks = np.linspace(-0.5, 0.5, DRIFT_BLOCKS)
        change = float(blocks @ medians / (blocks @ blocks))
        residuals = medians - medians.mean() - change * blocks
        error = np.sqrt(residuals @ residuals / (DRIFT_BLOCKS - 2) / (blocks @ blocks))
        return float(np.expm1(change)) if abs(change) > MIN_DRIFT_SCORE * error else 0.0


@cached_value("window")
def steady_window(record: RunRecord) -> Window:
    """Return the steady part of a run: all epochs except the first. In a run of one epoch,
    this part begins after the warm-up steps and after the step in which traffic was counted.
    """
    if record.ranks[0].notes.watched:  # "Watched": a user's program.
        return _watched_window(record)
    epochs = _epochs(record)
    if not epochs:
        raise NotEnoughData(
            f"{record.folder} was resumed after its last step: no step was left to measure",
            hint="request more steps than its checkpoint has, or leave resume out"
            if record.spec.resume
            else "repeat it with `again`",
        )
    steps_per_epoch = record.ranks[0].outline.steps
    # A resumed epoch has fewer steps than others; a span without a count is a complete epoch.
    counts = (spans[0].steps for spans in epochs[0])
    first_steps = sum(steps_per_epoch if count is None else count for count in counts)
    stretches = [spans for epoch in epochs[1:] or epochs for spans in epoch]
    window = Window(
        samples=sum(span.samples for spans in stretches for span in spans),
        seconds=sum(_duration(spans) for spans in stretches),
        step_seconds=_step_seconds(record, first_steps),
        first=first_steps,
        steps=steps_per_epoch * (len(epochs) - 1) or first_steps,  # One epoch: all its steps.
        left_out="first epoch",
    )
    return window if len(epochs) > 1 else _after_warmup(record, window, stretches[0])


def _after_warmup(record: RunRecord, epoch_window: Window, first_spans: tuple[Span, ...]) -> Window:
    """Return a single epoch's window after the warm-up; ``first_spans`` is its first stretch."""
    step_seconds = _step_seconds(record, 0)
    # Counting traffic slows a step down, so the window begins after that step.
    traffic = record.ranks[0].notes.traffic
    traffic_steps = 0 if traffic is None or traffic.step is None else traffic.step + 1
    dropped = max(count_warmup_steps(step_seconds), min(traffic_steps, len(step_seconds) // 2))
    warmup = [float(rank.steps.seconds[:dropped].sum()) for rank in record.ranks]
    warmup_end = min(span.start + length for span, length in zip(first_spans, warmup, strict=True))
    warmup_samples = sum(int(rank.steps.samples[:dropped].sum()) for rank in record.ranks)
    return Window(
        samples=epoch_window.samples - warmup_samples,
        seconds=epoch_window.seconds - (warmup_end - min(span.start for span in first_spans)),
        step_seconds=step_seconds[dropped:],
        first=dropped,
        steps=epoch_window.steps - dropped,
        left_out=_first_steps_text(dropped),
    )


def _watched_window(record: RunRecord) -> Window:
    """Return the steady part of a user's program: after the warm-up, without traced steps."""
    steps = [rank.steps for rank in record.ranks]
    traced = [rank.traced for rank in record.ranks if rank.traced is not None]
    step_count = min(rank.outline.steps for rank in record.ranks)
    # In a long run, only some steps are recorded separately.
    recorded = min(int((columns.index < step_count).sum()) for columns in steps)
    if not step_count or not recorded or any(columns.at is None for columns in steps):
        raise NotEnoughData(
            f"{record.folder} holds no step that all ranks took", hint="see its log.txt"
        )
    step_seconds = np.asarray(np.mean([columns.seconds[:recorded] for columns in steps], axis=0))
    dropped = count_warmup_steps(step_seconds)
    excluded_samples = sum(int(columns.samples[:dropped].sum()) for columns in steps)
    excluded_samples += sum(int(columns.samples.sum()) for columns in traced)
    steady_steps = step_count - dropped - max((len(columns.index) for columns in traced), default=0)
    return Window(
        samples=sum(rank.outline.seen for rank in record.ranks) - excluded_samples,
        seconds=_watched_seconds(record, dropped, recorded, steady_steps),
        step_seconds=step_seconds[dropped:],
        first=int(steps[0].index[dropped]),
        steps=steady_steps,
        left_out=_first_steps_text(dropped),
    )


def _watched_seconds(record: RunRecord, dropped: int, recorded: int, steady_steps: int) -> float:
    """Return the seconds from the first steady step to the end of training. Time in which any rank
    pauses is excluded: for example, one rank validates while the other ranks wait.
    """
    steps = [rank.steps for rank in record.ranks]
    if record.ranks[0].notes.device not in (None, "cpu"):
        # The host runs ahead of an accelerator, so the device's own step times are used.
        step_seconds = min(float(columns.seconds[dropped:recorded].mean()) for columns in steps)
        return step_seconds * steady_steps
    spans = [span for rank in record.ranks for span in rank.spans]
    begin = min(float(columns.at[dropped]) for columns in steps if columns.at is not None)
    end = max(span.end for span in spans if span.name == "train")
    pauses = [(span.start, span.end) for span in spans if span.name in PAUSES]
    return end - begin - total_length(intersect(pauses, [(begin, end)]))


@cached_value("training interval")
def training_interval(record: RunRecord) -> tuple[float, float] | None:
    """Return when the first rank began to train and the last rank ended; None without training."""
    spans = [span for rank in record.ranks for span in rank.spans if span.name == "train"]
    if not spans:
        return None
    return min(span.start for span in spans), max(span.end for span in spans)


def _first_steps_text(count: int) -> str:
    return f"first {count} step{'s' if count > 1 else ''}" if count else "nothing"


def count_warmup_steps(seconds: NDArray[np.float64]) -> int:
    """Return how many steps at the start are slower than later steps, at most half of all steps.

    Change-point search: splits the logarithms of the first thousand step times where two means fit
    much better than one (least squares), and repeats this on the later part.

    >>> count_warmup_steps(np.array([9.0] * 3 + [1.0, 1.1] * 20))
    3
    """
    logs = np.log(np.maximum(seconds[:1000], 1e-9))
    dropped = 0
    while True:
        split = _find_drop(logs[dropped:], len(logs) // 2 - dropped)
        if not split:
            return dropped
        dropped += split


def _find_drop(logs: NDArray[np.float64], max_split: int) -> int:
    """Return the step (up to ``max_split``) where the mean falls; 0 if the mean does not fall."""
    count = len(logs)
    if count < 4 or max_split < 1:
        return 0
    splits = np.arange(1, max_split + 1)
    after = count - splits  # Steps after each split.
    sums, squares = np.cumsum(logs), np.cumsum(logs**2)
    error_before = squares[splits - 1] - sums[splits - 1] ** 2 / splits
    error_after = (squares[-1] - squares[splits - 1]) - (sums[-1] - sums[splits - 1]) ** 2 / after
    error_unsplit = max(squares[-1] - sums[-1] ** 2 / count, 0.0)
    floor = 1e-12 * count  # Avoids 0 / 0 if all steps are equal.
    best = int(np.argmin(error_before + error_after))
    error_split = max(error_before[best] + error_after[best], 0.0)
    likelihood_gain = count * np.log((error_unsplit + floor) / (error_split + floor))
    split = int(splits[best])
    is_slower = sums[split - 1] / split > (sums[-1] - sums[split - 1]) / after[best]
    penalty = 4 * np.log(count)  # Because every position was tried.
    return split if is_slower and likelihood_gain > penalty else 0


@cached_value("lifetime")
def lifetime_parts(record: RunRecord) -> dict[str, float]:
    """Return the seconds of each part of a run's lifetime; with ``unexplained`` they sum to the
    complete time. A part lasts from its first rank's start to its last rank's end. Where two parts
    overlap, the earlier part counts; in a user's program, the first part in ``by_precedence``.
    """
    if record.ranks[0].notes.watched:
        return _watched_lifetime_parts(record)
    pieces = []  # (start, end, name)
    # Spans of earlier attempts differ: a rank that joined later has a shorter span, or none.
    if earlier := [span for rank in record.ranks for span in rank.spans if span.name == EARLIER]:
        pieces.append((min(s.start for s in earlier), max(s.end for s in earlier), EARLIER))
    names = dict.fromkeys(span.name for span in record.ranks[0].spans if span.name != EARLIER)
    for name in names:
        for spans in _spans_of_all_ranks(record, name):
            pieces.append((min(s.start for s in spans), max(s.end for s in spans), name))
    parts: dict[str, float] = {}
    reached = record.started  # The time up to which all pieces are counted.
    for start, end, name in sorted(pieces):
        end = min(end, record.ended)
        parts[name] = parts.get(name, 0.0) + max(0.0, end - max(start, reached))
        reached = max(reached, end)
    # The time from the last rank's last record to the end of the launcher is shutdown too.
    if SHUTDOWN in parts:
        parts[SHUTDOWN] += max(0.0, record.ended - reached)
    parts[UNEXPLAINED] = record.ended - record.started - sum(parts.values())
    return parts


def _watched_lifetime_parts(record: RunRecord) -> dict[str, float]:
    """Return ``lifetime_parts`` of a user's program, whose ranks may be in different parts."""
    spans = [span for rank in record.ranks for span in rank.spans]
    seconds: dict[str, float] = {}
    intervals: list[tuple[float, float]] = []
    covered = 0.0
    for name in by_precedence(span.name for span in spans):
        intervals += [(span.start, span.end) for span in spans if span.name == name]
        covered_with_name = total_length(intersect(intervals, [(record.started, record.ended)]))
        seconds[name], covered = covered_with_name - covered, covered_with_name
    # The time from the last rank's last record to the end of the launcher is shutdown too.
    exiting = max(0.0, record.ended - max(span.end for span in spans))
    parts = {name: seconds[name] for name in in_order_of_life(seconds) if seconds[name]}
    parts[SHUTDOWN] = parts.get(SHUTDOWN, 0.0) + exiting
    parts[UNEXPLAINED] = record.ended - record.started - covered - exiting
    return parts


@cached_value("epochs")
def epoch_seconds(record: RunRecord) -> list[float]:
    """Return the training seconds of each epoch; empty if the run has no epochs or was resumed."""
    if record.spec.epochs is None or record.ranks[0].notes.resumed:
        return []
    return [sum(_duration(spans) for spans in epoch) for epoch in _epochs(record)]


@cached_value("saves")
def save_seconds(record: RunRecord) -> list[float]:
    """Return the seconds of each checkpoint during training, until the slowest rank has saved."""
    by_rank = [
        [span.end - span.start for span in rank.spans if span.checkpoint_step is not None]
        for rank in record.ranks
    ]
    return [max(seconds) for seconds in zip(*by_rank)]  # The ranks' saves, in order.


def _epochs(record: RunRecord) -> list[list[tuple[Span, ...]]]:
    """Return the stretches of training in each epoch; checkpoints lie between stretches."""
    epochs: dict[int, list[tuple[Span, ...]]] = {}
    for spans in _spans_of_all_ranks(record, "train"):
        epochs.setdefault(spans[0].epoch, []).append(spans)
    return list(epochs.values())


def _spans_of_all_ranks(record: RunRecord, name: str) -> list[tuple[Span, ...]]:
    """Return a tuple of all ranks' spans for each time that a span of this name was recorded."""
    by_rank = [[span for span in rank.spans if span.name == name] for rank in record.ranks]
    return list(zip(*by_rank))


def _duration(spans: tuple[Span, ...]) -> float:
    return max(span.end for span in spans) - min(span.start for span in spans)


def _step_seconds(record: RunRecord, first: int) -> NDArray[np.float64]:
    """Return the seconds of each step from ``first`` on, averaged over ranks with equal steps."""
    index = record.ranks[0].steps.index
    matching = [rank.steps for rank in record.ranks if np.array_equal(rank.steps.index, index)]
    return np.asarray(np.mean([steps.seconds[index >= first] for steps in matching], axis=0))
