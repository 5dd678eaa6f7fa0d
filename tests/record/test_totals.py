"""Without sums, totals find a line that is missing, doubled, changed or of another rank."""

import json
import re
import shutil
from pathlib import Path

import pytest

from builders import a_run
from fake_study import play
from scalewise.errors import RecordError
from scalewise.record.json_files import read_json
from scalewise.record.read import read_run
from scalewise.record.write import rank_file, write_json
from scalewise.spec import RunSpec
from unsealed import unseal

RUN = a_run(topology="1x2", steps=120, checkpoint_every=50, options={"noise": 0.02})
SCRIPT = Path(__file__).parents[1] / "folders" / "script"


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    return unseal(play(RUN, tmp_path_factory.mktemp("played")).folder)


@pytest.fixture
def home(played, tmp_path):
    shutil.copytree(played, tmp_path / RUN.id)
    return tmp_path / RUN.id


def content_of(record):
    """Return everything that answers are made from."""
    return [
        (
            rank.host, rank.spans, rank.notes, rank.lines[-1],
            [rank.steps.index.tolist(), rank.steps.seconds.tolist(), rank.steps.samples.tolist()],
        )
        for rank in record.ranks
    ]  # fmt: skip


def silently_changed(home, spec, before, rank, lines):
    """Return whether a run can be read with these lines and has changed; restore its lines."""
    path = rank_file(home, rank)
    kept = path.read_bytes()
    path.write_bytes(b"".join(lines))
    try:
        return content_of(read_run(home, spec)) != before
    except RecordError as error:
        refusal = rf"rank-0000{rank}\.jsonl is (damaged: (line \d|before)|cut off)"
        return not (re.search(refusal, str(error)) and error.hint)
    finally:
        path.write_bytes(kept)


def lines_of(home, rank):
    return rank_file(home, rank).read_bytes().splitlines(keepends=True)


def damaged_lines(own, other):
    """Yield what was done to one line of a rank, and all lines."""
    for number, line in enumerate(own):
        before, after = own[:number], own[number + 1 :]
        yield "without", line, [*before, *after]
        yield "twice", line, [*before, line, line, *after]
        yield "not JSON", line, [*before, line[:-9] + b"\n", *after]
        for foreign in other[number : number + 1]:
            # The same span of another rank of the fake machine may have the same times.
            if json.loads(foreign).keys() & {"schema", "outline", "ended"}:
                yield "with a foreign line before", line, [*before, foreign, line, *after]


@pytest.mark.parametrize("rank", [0, 1])
def test_no_line_can_be_missing_or_twice(home, rank):
    own, other = lines_of(home, rank), lines_of(home, 1 - rank)
    before = content_of(read_run(home, RUN))
    changed = [
        (what, line[:120])
        for what, line, lines in damaged_lines(own, other)
        if silently_changed(home, RUN, before, rank, lines)
    ]
    assert not changed


def test_no_number_of_steps_and_spans_can_be_another(home):
    lines, before = lines_of(home, 0), content_of(read_run(home, RUN))
    changed = []
    for number, line in enumerate(lines):
        values = json.loads(line)
        edits = {key: values[key] for key in ("seconds", "samples", "taken") if key in values}
        for key in edits:
            new = json.dumps(values | {key: values[key] + 1}, separators=(",", ":"))
            if silently_changed(
                home, RUN, before, 0, [*lines[:number], new.encode() + b"\n", *lines[number + 1 :]]
            ):
                changed.append((key, line[:80]))
        for name, column in values.get("each", {}).items():
            column[0] += 1
            new = json.dumps(values, separators=(",", ":"))
            column[0] -= 1
            if silently_changed(
                home, RUN, before, 0, [*lines[:number], new.encode() + b"\n", *lines[number + 1 :]]
            ):
                changed.append((name, line[:80]))
    assert not changed


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ranks": 1}, "has 1 ranks, and the run 2"),
        ({"started": 1794712705.5}, "its ranks say another time"),
        ({"ended": 5.0}, "before its ranks"),
        ({"ended": 9e9}, "and its ranks at"),
    ],
)
def test_an_outcome_that_its_ranks_contradict_is_refused(home, change, said):
    write_json(home / "outcome.json", {**read_json(home / "outcome.json"), **change})
    with pytest.raises(RecordError, match=rf"outcome\.json is damaged: .*{said}"):
        read_run(home, RUN)


def test_the_record_of_a_script_by_an_earlier_version_is_read_and_defended(tmp_path):
    names = [path.name for path in SCRIPT.iterdir() if (path / "rank-00001.jsonl").exists()]
    shutil.copytree(SCRIPT / names[0], tmp_path / names[0])
    home = tmp_path / names[0]
    spec = RunSpec.from_dict(read_json(home / "spec.json"))
    assert len(read_run(home, spec).ranks) == spec.ranks > 1
    own, other = lines_of(home, 1), lines_of(home, 0)
    before = content_of(read_run(home, spec))
    small = (b'"span":"build"', b'"span":"rendezvous"', b'"span":"validate"', b'"span":"shutdown"')
    changed = [
        (what, line[:120])
        for what, line, lines in damaged_lines(own, other)
        # A script's time without a span counts as unexplained.
        if not any(span in line for span in small)
        if silently_changed(home, spec, before, 1, lines)
    ]
    assert not changed


def test_a_phase_of_a_single_step_among_many_cannot_be_another(tmp_path):
    spec = a_run(steps=1100)
    home = unseal(play(spec, tmp_path).folder)
    path = rank_file(home, 0)
    last = [line for line in path.read_text().splitlines() if '"steps":[1' in line][-1]
    values = json.loads(last)
    values["each"]["forward"][3] *= 1.5
    path.write_text(path.read_text().replace(last, json.dumps(values)))
    with pytest.raises(RecordError, match=r"line \d+: the phases of a step of .* s add up to"):
        read_run(home, spec)
