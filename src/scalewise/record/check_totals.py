"""Compare what a rank counted twice: totals with single steps, spans with steps, ranks with ranks.

Lines of earlier versions have no sums. There, these totals find a line that is missing, doubled,
changed or of another file. Each of them holds by the way a rank writes its lines.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scalewise.errors import RecordError, shown
from scalewise.record.line_sums import REPEAT
from scalewise.record.schema import EARLIER, SHUTDOWN, TRAIN
from scalewise.record.write import rank_file
from scalewise.spec import RunSpec

Line = Mapping[str, Any]
Numbered = Sequence[tuple[int, Line]]
"""The lines of an attempt, with their numbers in the file."""

ROUNDING_SECONDS = 1e-7
"""Seconds of steps and phases are rounded to this; times of spans to ten times as much."""
CLOCK_SECONDS = 1e-5
"""Marks of a device's clock may be apart by so much more than the laps between them."""
BUILT_IN = ("fake", "torch", "tensorflow", "jax", "horovod", "deepspeed")
"""Frameworks whose ranks write one span after the other; those of plugins may do otherwise."""
SINGLE_SPANS = ("launch", "rendezvous", "data", "build", SHUTDOWN)
"""A rank of these frameworks writes each of them once."""
MAX_CLOCK_OFFSET_SECONDS = 600.0
"""By so much the clocks of a launcher and of a node may differ."""


def check_rank_totals(path: Path, lines: Numbered, rank: int, spec: RunSpec) -> None:
    """Refuse the lines of a rank, which have no sums, if two numbers of the same steps or spans
    disagree.
    """
    problem = (
        _header_problem(lines, rank, spec.ranks)
        or _double_problem(lines)
        or next(_step_problems(lines), None)
        or _span_problem(lines)
        or _plan_problem(lines, spec)
    )
    if not problem and not spec.program and spec.framework in BUILT_IN:
        problem = _order_problem(lines) or _count_problem(lines, rank, spec)
    if problem:
        number, sentence = problem
        raise RecordError(f"{path} is damaged: line {number}: {sentence}", hint=REPEAT)


Problem = tuple[int, str]
"""The number of a line, and what is wrong with it."""


def _header_problem(lines: Numbered, rank: int, ranks: int) -> Problem | None:
    """Return which line is of another rank, or says another number of ranks."""
    for number, line in lines:
        if "schema" in line and line.get("rank", rank) != rank:
            return number, f"it is of rank {shown(line['rank'])}"
        if "schema" in line and line.get("world", ranks) != ranks:
            return number, f"it is of {shown(line['world'])} ranks, and the run has {ranks}"
    if lines and not any("rank" in line for _, line in lines):
        return lines[0][0], "the line before it is missing, which says whose lines these are"
    return None


def _double_problem(lines: Numbered) -> Problem | None:
    """Return the second line of a kind of which an attempt has one."""
    ended, planned = 0, set()
    for number, line in lines:
        ended += "ended" in line
        if ended > 1:
            return number, "it is a second end"
        if "outline" in line:
            steps = line["outline"]["steps"]
            if steps in planned:  # An elastic run has one for each number of ranks.
                return number, "it is a second outline of as many steps"
            planned.add(steps)
    return None


def _step_problems(lines: Numbered) -> Iterator[Problem]:
    """Yield the lines of steps that do not follow each other, or whose totals are others."""
    next_step = 0
    for number, line in lines:
        if "steps" not in line:
            continue
        first, end = line["steps"]
        if first != next_step:
            what = f"step {next_step} is missing" if first > next_step else "steps are there twice"
            yield number, f"its steps begin with {first}: {what}"
        next_step = end
        if "each" in line and (sentence := _column_problem(line, first, end)):
            yield number, sentence


def _overlap_problem(lines: Numbered) -> Problem | None:
    """Return which line of a user's program has a step that begins before the one before ended."""
    ended = 0.0
    for number, line in lines:
        columns = line.get("each", {})
        for start, seconds in zip(columns.get("at") or (), columns.get("seconds") or ()):
            if start < ended - CLOCK_SECONDS:
                return number, "its steps begin before those of the line before it end"
            ended = start + seconds
    return None


def _column_problem(line: Line, first: int, end: int) -> str:
    """Return why the single steps of a line are not those of its totals; empty if they are."""
    index, columns, phases = line["index"], line["each"], line.get("phases", {})
    if index != list(range(first, end)):
        if not all(low < high for low, high in zip([first - 1, *index], [*index, end])):
            return "its single steps are no steps of the line"
        return _row_problem(columns, phases)
    tolerance = ROUNDING_SECONDS * (end - first + 2)
    for name, total in (*phases.items(), ("seconds", line.get("seconds"))):
        column = columns.get(name)
        if total is None or column is None:
            continue
        try:
            counted = sum(column)
        except TypeError:  # The phase was not measured in every step.
            counted = sum(value for value in column if value is not None)
        if abs(counted - total) > tolerance + 1e-9 * abs(total):
            return f"its {name} of {total:.7g} s in total is {counted:.7g} s in single steps"
    if "samples" in line and "samples" in columns and sum(columns["samples"]) != line["samples"]:
        return f"its {line['samples']} samples are {sum(columns['samples'])} in single steps"
    return ""


def _row_problem(columns: Mapping[str, Any], phases: Mapping[str, Any]) -> str:
    """Return why the phases of single steps do not add up to these steps; empty if they do."""
    parts = [columns[name] for name in phases if name != "hidden" and columns.get(name)]
    for seconds, *row in zip(columns["seconds"], *parts) if parts else ():
        added = sum(value or 0.0 for value in row)
        if abs(added - seconds) > CLOCK_SECONDS * (1 + len(row)) + 1e-3 * seconds:
            return f"the phases of a step of {seconds:.7g} s add up to {added:.7g} s"
    return ""


def _span_problem(lines: Numbered) -> Problem | None:
    """Return which span cannot have been where it says, or is there twice."""
    ended = next((line["ended"] for _, line in lines if "ended" in line), None)
    seen: set[tuple[str, float, float]] = set()
    for number, line in lines:
        if "span" not in line:
            continue
        name, start, end = line["span"], line["start"], line["end"]
        # The launch was seen by the clock of another machine.
        if end < start and name not in ("launch", EARLIER):
            return number, f"its span {name} ends before it begins"
        if ended is not None and end > ended + CLOCK_SECONDS:
            return number, f"its span {name} ends after the rank"
        if (name, start, end) in seen and end > start:
            return number, f"its span {name} is there twice"
        seen.add((name, start, end))
    return None


def _plan_problem(lines: Numbered, spec: RunSpec) -> Problem | None:
    """Return where the steps of a rank are not those of its outline, its spans or its ledgers."""
    outlines = [(number, line["outline"]) for number, line in lines if "outline" in line]
    if len(outlines) != 1:
        return None
    number, outline = outlines[0]
    done = [line for _, line in lines if "steps" in line]
    steps = done[-1]["steps"][1] if done else 0
    samples = sum(line.get("samples", 0) for line in done)
    if not spec.program:
        planned = outline["steps"] * (outline.get("epochs") or 1) - _resumed(lines)
        return _difference(number, "it has", steps, planned) or _train_problem(
            lines, steps, samples
        )
    if not _is_complete(lines):
        return None  # What watching itself missed is a doubt: see ``analysis.conservation``.
    if not any(line.get("span") == "launch" for _, line in lines):
        return lines[-1][0], "before it, the span launch is missing"
    return (
        _difference(number, "it has", steps, outline["steps"], samples, outline["seen"])
        or _train_problem(lines, steps, None if spec.samples_per_step else samples)
        or _ledger_problem(lines, steps)
        or _overlap_problem(lines)
    )


def _resumed(lines: Numbered) -> int:
    """Return after how many steps the attempt resumed."""
    return next((int(line["resumed"]) for _, line in lines if "resumed" in line), 0)


def _is_complete(lines: Numbered) -> bool:
    """Return whether all steps of a user's program were recorded: watching may have stopped, and on
    an accelerator the last steps may not be over when the program ends.
    """
    device = next((line["device"] for _, line in reversed(lines) if "device" in line), None)
    return device in (None, "cpu") and not any("unwatched" in line for _, line in lines)


def _difference(
    number: int,
    what: str,
    steps: int,
    other_steps: int,
    samples: int | None = None,
    other_samples: int | None = None,
) -> Problem | None:
    if steps != other_steps:
        return number, f"{what} {other_steps} steps, and the lines of steps have {steps}"
    if samples is not None and samples != other_samples:
        return number, f"{what} {other_samples} samples, and the lines of steps have {samples}"
    return None


def _train_problem(lines: Numbered, steps: int, samples: int | None) -> Problem | None:
    """Return where the spans of training have other steps or samples than there are."""
    spans = [(number, line) for number, line in lines if line.get("span") == TRAIN]
    if not spans or not all("taken" in line and "samples" in line for _, line in spans):
        return None
    taken = sum(line["taken"] for _, line in spans)
    seen = sum(line["samples"] for _, line in spans)
    return _difference(spans[-1][0], "up to it, training has", steps, taken, samples, seen)


def _ledger_problem(lines: Numbered, steps: int) -> Problem | None:
    """Return which line of ledgers has other spans than the lines before it, or other steps."""
    seconds: defaultdict[str, float] = defaultdict(float)
    counts: Counter[str] = Counter()
    for number, line in lines:
        if "span" in line and line["span"] != EARLIER:
            seconds[line["span"]] += line["end"] - line["start"]
            counts[line["span"]] += 1
        if not (ledgers := line.get("ledgers")):
            continue
        for name, total in (ledgers.get("time") or {}).get("spans", {}).items():
            # Both ends of a span are rounded.
            if abs(seconds[name] - total) > 1e-5 + 2e-6 * counts[name]:
                spans = f"the spans before it have {seconds[name]:.6f} s"
                return number, f"it has {total:.6f} s of {name}, and {spans}"
        if (recorded := (ledgers.get("steps") or {}).get("recorded", steps)) != steps:
            return _difference(number, "it has", steps, recorded)
    return None


def _order_problem(lines: Numbered) -> Problem | None:
    """Return which span begins before the one before it has ended."""
    before = None
    for number, line in lines:
        if "span" in line:
            if before and line["start"] < before["end"] - CLOCK_SECONDS:
                return number, f"its span {line['span']} begins before {before['span']} ends"
            before = line
    return None


def _count_problem(lines: Numbered, rank: int, spec: RunSpec) -> Problem | None:
    """Return the last line if a span or epoch is missing, or is there too often."""
    outlines = [line["outline"] for _, line in lines if "outline" in line]
    if len(outlines) != 1:
        return None
    steps, epochs, resumed = outlines[0]["steps"], outlines[0].get("epochs") or 1, _resumed(lines)
    counts = Counter(line["span"] for _, line in lines if "span" in line)
    stored = sum(line.get("span") == "checkpoint" and "step" in line for _, line in lines)
    expected = dict.fromkeys(SINGLE_SPANS, 1)
    if steps:
        expected["validate"] = epochs - max(0, resumed - 1) // steps
    found: dict[str, int] = {name: counts[name] for name in expected}
    if every := spec.checkpoint_every:
        last = steps * epochs
        expected["checkpoint"] = last // every - resumed // every
        expected["checkpoint"] += last % every > 0 and last > resumed
        found["checkpoint"] = stored
        expected["restore"], found["restore"] = 1, counts["restore"]
    if every or spec.save:
        expected["last checkpoint"], found["last checkpoint"] = 1, counts["checkpoint"] - stored
    if rank == 0:
        expected["epoch"] = found["validate"]
        epochs_noted = {
            line["epoch"] for _, line in lines if "epoch" in line and "span" not in line
        }
        found["epoch"] = len(epochs_noted)
    for name in ("device", "environment") if rank == 0 else ("device",):
        expected[name], found[name] = 1, int(any(name in line for _, line in lines))
    for name, count in expected.items():
        if found[name] != count:
            return lines[-1][
                0
            ], f"before it are {found[name]} lines {name}, and {count} were written"
    return None


def check_ranks(
    folder: Path, spec: RunSpec, outcome: Line, ranks: Sequence[Sequence[Line]]
) -> None:
    """Refuse a run whose ranks' ``lines`` disagree with each other, or with its outcome."""
    path = folder / "outcome.json"
    if spec.program:
        with_facts = [any("facts" in line for line in lines) for lines in ranks]
        if any(with_facts) and not all(with_facts):
            path = rank_file(folder, with_facts.index(False))
            raise RecordError(
                f"{path} is damaged: before its last line, its line facts is missing", hint=REPEAT
            )
    if outcome["ranks"] != spec.ranks:
        problem = f"it has {outcome['ranks']} ranks, and the run {spec.ranks}"
        raise RecordError(f"{path} is damaged: {problem}", hint=REPEAT)
    ends = [next(line for line in lines if "ended" in line) for lines in ranks]
    started, ended = outcome["started"], outcome["ended"]
    last = max(end["ended"] for end in ends)
    if started != min(end.get("launched") or 0.0 for end in ends):
        problem = f"the run began at {started}, and its ranks say another time"
    elif ended < max(started, last - MAX_CLOCK_OFFSET_SECONDS):
        problem = f"the run ended at {ended}, before its ranks"
    elif any(end.get("simulated") for end in ends) and ended != last:
        problem = f"the run ended at {ended}, and its ranks at {last}"
    else:
        return
    raise RecordError(f"{path} is damaged: {problem}", hint=REPEAT)
