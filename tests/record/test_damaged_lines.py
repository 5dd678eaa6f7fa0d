"""A run's lines are read whole and unchanged, or refused with the file and the line."""

import json
import os
import shutil
import time

import pytest

from builders import a_run, a_study
from fake_study import play
from scalewise.errors import RecordError
from scalewise.launch import next_attempt
from scalewise.load_run import cache_runs
from scalewise.record.json_files import read_json
from scalewise.record.line_sums import last_sum, read_attempt, split_sum
from scalewise.record.node_samples import node_samples_by_folder, read_nodes
from scalewise.record.rank_tail import newest_attempt
from scalewise.record.read import read_run
from scalewise.record.study_files import failure
from scalewise.record.write import LineFile, RankFile, rank_file, write_json
from scalewise.report.text.doubts import warning_text
from scalewise.results import curves_with_records
from unsealed import unseal

STUDY = {"topologies": ["1x2"], "steps": 300, "options": {"watts": 300.0}}
(RUN,) = a_study(**STUDY).runs()


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    return play(RUN, tmp_path_factory.mktemp("played")).folder


@pytest.fixture
def home(played, tmp_path):
    shutil.copytree(played, tmp_path / RUN.id)
    return tmp_path / RUN.id


def swapped(lines):
    lines[2], lines[3] = lines[3], lines[2]


def digit_changed(lines):
    place = next(number for number, line in enumerate(lines) if b'"steps":[100,200]' in line)
    lines[place] = lines[place].replace(b'"samples":800', b'"samples":900', 1)


DAMAGES = {
    "a line is missing": (lambda lines: lines.pop(2), "line 3 was changed, or does not follow"),
    "the first line is missing": (lambda lines: lines.pop(0), "line 1 was changed"),
    "the last line is missing": (lambda lines: lines.pop(), "is cut off: it was longer"),
    "the last line is cut": (lambda lines: lines.append(lines.pop()[:-9]), "is cut off"),
    "a line is there twice": (lambda lines: lines.insert(3, lines[2]), "line 4 is there twice"),
    "two lines have changed places": (swapped, "line 3 was changed"),
    "a digit is another": (digit_changed, r"line \d+ was changed"),
    "a line has lost its sum": (
        lambda lines: lines.__setitem__(2, split_sum(lines[2])[0]),
        "line 3 has no checksum",
    ),
    "a line is not JSON": (lambda lines: lines.insert(2, b"x"), "line 3 is not JSON"),
    "a line is nested": (lambda lines: lines.insert(2, b"[" * 99_999), "line 3 is not JSON"),
    "a line is of 20 MB": (lambda lines: lines.insert(2, b'"' * 20_000_000), "line 3 is longer"),
    "all sums are missing": (
        lambda lines: lines.__setitem__(slice(None), [split_sum(line)[0] for line in lines]),
        "is cut off: it was longer",
    ),
}


@pytest.mark.parametrize(("damage", "said"), DAMAGES.values(), ids=DAMAGES)
def test_damaged_lines_are_refused_with_their_number(home, damage, said):
    path = rank_file(home, 1)
    lines = path.read_bytes().splitlines()
    damage(lines)
    path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(RecordError, match=rf"rank-00001\.jsonl (is damaged: )?{said}") as refused:
        read_run(home, RUN)
    assert refused.value.hint


def test_files_of_another_rank_or_run_are_refused(home, tmp_path):
    one, two = rank_file(home, 0), rank_file(home, 1)
    content = one.read_bytes()
    one.write_bytes(two.read_bytes())
    with pytest.raises(RecordError, match="line 1 was changed"):
        read_run(home, RUN)
    one.write_bytes(content)
    other = a_run(topology="1x2", steps=200)
    foreign = play(other, tmp_path / "other").folder
    shutil.copy(rank_file(foreign, 1), two)
    with pytest.raises(RecordError, match=f"line 1 is of another run, '{other.id}'"):
        read_run(home, RUN)
    shutil.rmtree(home)
    shutil.copytree(foreign, home)  # The whole folder.
    with pytest.raises(RecordError, match=f"is of another run, '{other.id}'"):
        read_run(home, RUN)


def test_a_folder_may_be_moved_and_renamed(home, tmp_path):
    home.rename(tmp_path / "kept")
    assert len(read_run(tmp_path / "kept", RUN).ranks) == 2


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
@pytest.mark.parametrize("name", ["rank-00000.jsonl", "outcome.json", "node-node-0.jsonl"])
def test_pipes_devices_and_links_out_of_the_study_are_refused(home, name, make):
    (home / name).unlink()
    make(home / name)
    began = time.monotonic()
    with pytest.raises(RecordError, match=f"cannot read .*{name}: it is"):
        read_nodes(home, 1) if name.startswith("node") else read_run(home, RUN)
    assert time.monotonic() - began < 2


def test_lines_of_earlier_versions_have_no_sums(home):
    record = read_run(unseal(home), RUN)
    assert len(record.ranks[0].steps.seconds) == 300
    RankFile(home, 0, 1).line({"later": 1})  # It has none either.
    assert read_run(home, RUN).ranks[0].lines[-1] == {"attempt": 1, "later": 1}
    RankFile(home, 0, 2).line({"later": 1})
    assert last_sum(rank_file(home, 0), 2) is not None


def test_a_file_that_is_opened_again_goes_on_with_its_sums(tmp_path):
    for number in range(3):
        file = RankFile(tmp_path, 0, 1)
        file.line({"number": number, "filler": "x" * (200_000 if number == 1 else 1)})
        file.close()
    RankFile(tmp_path, 0, 2).line({"number": 3})
    with rank_file(tmp_path, 0).open("ab") as file:
        file.write(b'{"attempt":2,"cut')
    RankFile(tmp_path, 0, 2).line({"number": 4})
    read = {
        attempt: [line["number"] for _, line in read_attempt(rank_file(tmp_path, 0), attempt)]
        for attempt in (1,)
    }
    assert read == {1: [0, 1, 2]}
    with pytest.raises(RecordError, match="line 5 is not JSON"):
        list(read_attempt(rank_file(tmp_path, 0), 2))


def test_a_line_of_a_running_attempt_may_be_cut_off(tmp_path):
    RankFile(tmp_path, 0, 1).line({"number": 0})
    with rank_file(tmp_path, 0).open("ab") as file:
        file.write(b'{"attempt":1,"cut')
    assert [number for number, _ in read_attempt(rank_file(tmp_path, 0), 1)] == [1]
    RankFile(tmp_path, 0, 2).line({"number": 1})
    for attempt in (1, 2):
        assert len(list(read_attempt(rank_file(tmp_path, 0), attempt))) == 1


def test_a_changed_attempt_does_not_count_as_the_newest_one(home):
    path = rank_file(home, 0)
    *lines, last = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines, last.replace(b'"attempt":1', b'"attempt":7'), b""]))
    assert newest_attempt(home, 1) == 1
    with pytest.raises(RecordError, match="is cut off"):
        read_run(home, RUN)


def test_a_damaged_node_file_is_told(home):
    record = read_run(home, RUN)
    (path,) = home.glob("node-*.jsonl")
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines, b""]))
    assert len(node_samples_by_folder([record])[home]) == 1
    path.write_bytes(b"\n".join([*lines[:-2], lines[-1], b""]))
    nodes = node_samples_by_folder([record])[home]
    assert not nodes and "was changed, or does not follow" in str(nodes.problem)
    path.unlink()
    nodes = node_samples_by_folder([record])[home]
    assert not nodes and "cannot read" in str(nodes.problem)


def test_samples_after_the_end_of_a_run_are_no_damage(home):
    record = read_run(home, RUN)
    (path,) = home.glob("node-*.jsonl")
    total = last_sum(path, 1)
    LineFile(path, 1).line({"at": record.ended + 1, "devices": []})
    assert last_sum(path, 1) != total
    (node,) = node_samples_by_folder([record])[home]
    assert node.at[-1] == record.ended + 1


def test_the_sums_of_an_outcome_are_those_of_the_last_lines(home):
    sums = json.loads((home / "outcome.json").read_text())["sums"]
    assert sums.keys() == {path.name for path in home.glob("*.jsonl")}
    for name, total in sums.items():
        assert json.loads((home / name).read_text().splitlines()[-1])["sum"] == total


def test_answers_without_the_samples_of_a_machine_say_so(home):
    write_json(home.parent / "study.json", a_study(**STUDY).to_dict())
    (path,) = home.glob("node-*.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"energy":', b'"energy":1', 1))
    ((curve, _),) = curves_with_records(home.parent)
    told = [warning_text(doubt) for doubt in curve.doubts if doubt.kind == "left out"]
    assert len(told) == 1 and "energy and load: " in told[0] and path.name in told[0]
    cache_runs(home.parent)
    assert not (home / "cache.json").exists()


WRONG_VALUES = {
    "text": (b'"seconds":[', b'"seconds":["x",'),
    "infinite": (b'"samples":[8,', b'"samples":[1e999,'),
    "NaN": (b'"forward":[', b'"forward":[NaN,'),
    "a column that is too short": (b'"samples":[8,', b'"samples":['),
    "no column": (b'"index":[0,', b'"index":{"0":['),
    "null": (b'"start":', b'"start":null,"begin":'),
    "a negative step": (b'"steps":[0,', b'"steps":[-1,'),
    "a huge number": (b'"samples":800', b'"samples":8' + b"0" * 30),
    "an outline of text": (b'"outline":{', b'"outline":"x","other":{'),
}


@pytest.mark.parametrize(("old", "new"), WRONG_VALUES.values(), ids=WRONG_VALUES)
def test_values_of_a_wrong_type_are_refused_without_sums_too(home, old, new):
    path = rank_file(unseal(home), 0)
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))
    with pytest.raises(RecordError, match=r"rank-00000\.jsonl is (damaged|cut off)"):
        read_run(home, RUN)


@pytest.mark.parametrize("change", [{"ranks": 0}, {"ranks": "2"}, {"ended": None}, {"attempt": -1}])
def test_an_outcome_that_cannot_be_true_is_refused(home, change):
    write_json(home / "outcome.json", {**read_json(home / "outcome.json"), **change})
    with pytest.raises(RecordError, match=r"outcome\.json is damaged: its"):
        read_run(home, RUN)


def test_a_failure_without_a_number_is_passed_over(home):
    write_json(home / "failure-2.json", {"attempt": 2, "cause": "lost", "closed": 1.0})
    (home / "failure-old.json").write_text("")
    assert failure(home) == "lost" and next_attempt(home) == 3
