"""The steady part of one run, and the parts of its whole life."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalewise.errors import NotEnoughData
from scalewise.record.read import RunRecord, Span
from scalewise.record.spans import EARLIER, PAUSES, UNEXPLAINED, by_precedence, in_order_of_life

MIN_STEADY_STEPS = 20
"""Steps below which a rate is not to be trusted much."""


@dataclass(frozen=True)
class Window:
    """The steady part of a run: what was done in it, and how long it took."""

    samples: int
    """Of all ranks."""
    seconds: float
    step_seconds: NDArray[np.float64]
    """Of the steps kept one by one, averaged over ranks."""
    first: int
    """The index of its first step."""
    steps: int
    """Optimizer steps in it, on each rank."""
    left_out: str
    """What was left out as warm-up, in words."""

    @property
    def throughput(self) -> float:
        """Samples per second of all ranks."""
        return self.samples / self.seconds


def steady_window(record: RunRecord) -> Window:
    """Return the steady part of a run.

    With several epochs, all but the first; with one epoch, or a number of
    steps, what follows the last change point of the warm-up, and the step whose
    traffic was counted.
    """
    if is_watched_program(record):
        return _steady_of_program(record)
    epochs = _epochs(record)
    if not epochs:
        raise NotEnoughData(
            f"{record.folder} was resumed when all its steps were done",
            hint="ask for more steps than its checkpoint has, or leave resume out"
            if record.spec.resume
            else "--again repeats it",
        )
    per_epoch = record.ranks[0].find("outline")["steps"]
    if len(epochs) > 1:
        later = [spans for epoch in epochs[1:] for spans in epoch]
        first = _taken(epochs[0], per_epoch)
        return Window(
            samples=sum(_samples(spans) for spans in later),
            seconds=sum(_length(spans) for spans in later),
            step_seconds=_step_seconds(record, first),
            first=first,
            steps=per_epoch * (len(epochs) - 1),
            left_out="first epoch",
        )
    series = _step_seconds(record, 0)
    dropped = max(count_warmup_steps(series), min(_counted(record), len(series) // 2))
    parts = epochs[0]
    warm = [float(rank.steps.seconds[:dropped].sum()) for rank in record.ranks]
    begin = min(span.start + late for span, late in zip(parts[0], warm, strict=True))
    early = sum(int(rank.steps.samples[:dropped].sum()) for rank in record.ranks)
    return Window(
        samples=sum(_samples(spans) for spans in parts) - early,
        seconds=sum(_length(spans) for spans in parts) - (begin - min(s.start for s in parts[0])),
        step_seconds=series[dropped:],
        first=dropped,
        steps=_taken(parts, per_epoch) - dropped,
        left_out=_first_steps(dropped),
    )


def _counted(record: RunRecord) -> int:
    """Return how many steps there were up to the one whose traffic was counted, which slows it."""
    found = record.ranks[0].find("traffic") or {}
    return int(found.get("step", -1)) + 1


def is_watched_program(record: RunRecord) -> bool:
    """Say whether a run is a user's own program, seen from outside."""
    return bool(record.ranks[0].find("guest"))


def _steady_of_program(record: RunRecord) -> Window:
    """Return the steady part of a program's run: what follows the warm-up, without pauses.

    Its ranks may pause at different times (one validates, the others wait), so
    the time in which any rank paused is left out for all. So are the steps that
    a profiler looked at, and their time.
    """
    steps = [rank.steps for rank in record.ranks]
    looks = [rank.traced for rank in record.ranks if rank.traced is not None]
    traced = max((len(each.index) for each in looks), default=0)
    count = min(int(rank.find("outline")["steps"]) for rank in record.ranks)
    common = min(int((each.index < count).sum()) for each in steps)
    if not count or not common or any(each.at is None for each in steps):
        raise NotEnoughData(
            f"{record.folder} holds no step that all ranks took", hint="see its log.txt"
        )
    series = np.asarray(np.mean([each.seconds[:common] for each in steps], axis=0))
    dropped = count_warmup_steps(series)
    begin = min(float(each.at[dropped]) for each in steps if each.at is not None)
    end = max(span.end for rank in record.ranks for span in rank.spans if span.name == "train")
    first = int(steps[0].index[dropped])
    early = sum(int(each.samples[:dropped].sum()) for each in steps)
    early += sum(int(each.samples.sum()) for each in looks)
    seconds = end - begin - _covered(_pauses(record), begin, end)
    if record.ranks[0].find("device") not in (None, "cpu"):
        # The host runs ahead of the device: only the device's own marks tell its pace.
        pace = min(float(each.seconds[dropped:common].mean()) for each in steps)
        seconds = pace * (count - dropped - traced)
    return Window(
        samples=sum(rank.find("outline")["seen"] for rank in record.ranks) - early,
        seconds=seconds,
        step_seconds=series[dropped:],
        first=first,
        steps=count - dropped - traced,
        left_out=_first_steps(dropped),
    )


def _pauses(record: RunRecord) -> list[tuple[float, float]]:
    return [(s.start, s.end) for rank in record.ranks for s in rank.spans if s.name in PAUSES]


def _covered(parts: list[tuple[float, float]], begin: float, end: float) -> float:
    """Return how much of a stretch these parts cover together.

    >>> _covered([(1.0, 3.0), (2.0, 4.0), (8.0, 20.0)], 0.0, 10.0)
    5.0
    """
    covered, reached = 0.0, begin
    for start, stop in sorted(parts):
        stop = min(stop, end)
        covered += max(0.0, stop - max(start, reached))
        reached = max(reached, stop)
    return covered


def _first_steps(count: int) -> str:
    return f"first {count} step{'s' if count > 1 else ''}" if count else "nothing"


def count_warmup_steps(seconds: NDArray[np.float64]) -> int:
    """Return how many steps at the start are slower than what follows.

    Splits the logarithms of the first thousand steps where two levels explain
    them much better than one (least squares, with a penalty for looking
    everywhere), as long as the part before is the slower one; then looks again
    in what is left. At least half of the steps stay.

    >>> count_warmup_steps(np.array([9.0] * 3 + [1.0, 1.1] * 20))
    3
    """
    logs = np.log(np.maximum(seconds[:1000], 1e-9))
    dropped = 0
    while True:
        split = _split(logs[dropped:], len(logs) // 2 - dropped)
        if not split:
            return dropped
        dropped += split


def _split(logs: NDArray[np.float64], most: int) -> int:
    """Return where the level falls, at most ``most`` steps in, or 0."""
    count = len(logs)
    if count < 4 or most < 1:
        return 0
    places = np.arange(1, most + 1)
    sums, squares = np.cumsum(logs), np.cumsum(logs**2)
    before = squares[places - 1] - sums[places - 1] ** 2 / places
    rest = count - places
    after = (squares[-1] - squares[places - 1]) - (sums[-1] - sums[places - 1]) ** 2 / rest
    whole = max(squares[-1] - sums[-1] ** 2 / count, 0.0)
    floor = 1e-12 * count
    best = int(np.argmin(before + after))
    gain = count * np.log((whole + floor) / (max(before[best] + after[best], 0.0) + floor))
    split = int(places[best])
    slower = sums[split - 1] / split > (sums[-1] - sums[split - 1]) / rest[best]
    return split if slower and gain > 4 * np.log(count) else 0


def lifetime_parts(record: RunRecord) -> dict[str, float]:
    """Return the seconds of each part of the run's whole life, and the rest.

    The parts and ``unexplained`` sum to the complete time. A part lasts from
    its first rank's start to its last rank's end; where two overlap, the
    earlier one counts. In a user's own program a pause of any rank counts
    before what the others did meanwhile.
    """
    if is_watched_program(record):
        return _life_of_program(record)
    pieces = []
    # A rank that had not begun in the first attempt knows nothing of it, or less.
    if before := [s for rank in record.ranks for s in rank.spans if s.name == EARLIER]:
        pieces.append((min(s.start for s in before), max(s.end for s in before), EARLIER))
    names = dict.fromkeys(span.name for span in record.ranks[0].spans if span.name != EARLIER)
    for name in names:
        for spans in _common(record, name):
            pieces.append((min(s.start for s in spans), max(s.end for s in spans), name))
    parts: dict[str, float] = {}
    reached = record.started
    for start, end, name in sorted(pieces):
        end = min(end, record.ended)
        parts[name] = parts.get(name, 0.0) + max(0.0, end - max(start, reached))
        reached = max(reached, end)
    # Leaving, from the last rank's last word to the launcher's, is shutdown too.
    if "shutdown" in parts:
        parts["shutdown"] += max(0.0, record.ended - reached)
    parts[UNEXPLAINED] = record.ended - record.started - sum(parts.values())
    return parts


def _life_of_program(record: RunRecord) -> dict[str, float]:
    parts: dict[str, float] = {}
    taken: list[tuple[float, float]] = []
    covered = 0.0
    for name in by_precedence(s.name for rank in record.ranks for s in rank.spans):
        taken += [(s.start, s.end) for rank in record.ranks for s in rank.spans if s.name == name]
        now = _covered(taken, record.started, record.ended)
        parts[name], covered = now - covered, now
    left = max(span.end for rank in record.ranks for span in rank.spans)
    tail = max(0.0, record.ended - left)  # Leaving, after the last rank's last word.
    told = {name: parts[name] for name in in_order_of_life(parts) if parts[name]}
    told["shutdown"] = told.get("shutdown", 0.0) + tail
    told[UNEXPLAINED] = record.ended - record.started - covered - tail
    return told


def epoch_seconds(record: RunRecord) -> list[float]:
    """Return how long each epoch trained, if epochs are what was asked for."""
    if record.spec.epochs is None or resumed_after_step(record):
        return []
    return [sum(_length(spans) for spans in epoch) for epoch in _epochs(record)]


def resumed_after_step(record: RunRecord) -> int | None:
    """Return after which step a run went on from a checkpoint, if it did."""
    found: int | None = record.ranks[0].find("resumed")
    return found


def last_validation(record: RunRecord) -> dict[str, Any] | None:
    """Return the last validation, if there was one."""
    found: dict[str, Any] | None = record.ranks[0].find("validation")
    return found


def _epochs(record: RunRecord) -> list[list[tuple[Span, ...]]]:
    """Return the stretches of training of each epoch: checkpoints lie between them."""
    found: dict[int, list[tuple[Span, ...]]] = {}
    for spans in _common(record, "train"):
        found.setdefault(spans[0].facts["epoch"], []).append(spans)
    return list(found.values())


def _taken(parts: list[tuple[Span, ...]], per_epoch: int) -> int:
    """Return the steps of an epoch: all of it, where its parts do not say otherwise."""
    return sum(spans[0].facts.get("taken", per_epoch) for spans in parts)


def _common(record: RunRecord, name: str) -> list[tuple[Span, ...]]:
    """Return the spans of this name: for each occurrence, every rank's."""
    by_rank = [[span for span in rank.spans if span.name == name] for rank in record.ranks]
    return list(zip(*by_rank))


def _samples(spans: tuple[Span, ...]) -> int:
    return sum(span.facts["samples"] for span in spans)


def _length(spans: tuple[Span, ...]) -> float:
    return max(span.end for span in spans) - min(span.start for span in spans)


def _step_seconds(record: RunRecord, first: int) -> NDArray[np.float64]:
    """Return the steps from index ``first`` on, averaged over ranks."""
    index = record.ranks[0].steps.index
    alike = [rank.steps for rank in record.ranks if np.array_equal(rank.steps.index, index)]
    return np.asarray(np.mean([steps.seconds[index >= first] for steps in alike], axis=0))
