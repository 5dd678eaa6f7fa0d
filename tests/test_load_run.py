"""The cache of a run changes no answer: it is made once, fits its run, or is ignored."""

import contextlib
import io
import json
import os
import shutil
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import scalewise
from builders import a_study
from commands import study_toml
from fake_study import a_watched_folder, play_all
from scalewise import load_run as loading
from scalewise import results
from scalewise.analysis.explain.rank_times import SlowRank
from scalewise.analysis.measure import cached_value
from scalewise.cli import app
from scalewise.errors import RecordError
from scalewise.load_run import cache_runs, load_run
from scalewise.record import node_samples, read, run_cache
from scalewise.record.read import RankRecord, read_run
from scalewise.record.study_files import read_study
from scalewise.record.write import rank_file, write_json
from scalewise.report.write_report import write_report

FOLDERS = sorted((Path(__file__).parent / "folders").iterdir())
QUESTIONS = [
    ["measure"],
    ["explain"],
    ["summary"],
    ["predict", "--at", "8"],
    ["advise", "--for", "efficiency=0.5"],
]


def a_noisy_folder(folder):
    """Play a study with repeats, whose ranks differ."""
    options = {"jitter": 0.05, "noise": 0.02, "slow": 0.002, "wait": 0.001, "watts": 300.0}
    study = a_study(
        topologies=["1x1", "1x2", "2x2"], batch=16, steps=80, options=options, repeats=2
    )
    write_json(folder / "study.json", study.to_dict())
    with contextlib.redirect_stdout(io.StringIO()):
        list(play_all(study, folder))
    return folder


@pytest.fixture
def noisy(tmp_path):
    return a_noisy_folder(tmp_path / "noisy")


def caches(folder):
    return sorted(folder.glob(f"*/{run_cache.NAME}"))


def answers(folder):
    """Return what every verb answers about a folder, as JSON; also a refusal."""
    found = []
    with contextlib.chdir(folder.parent):
        for verb, *options in QUESTIONS:
            argv = [verb, folder.name, *options, "--json"]
            done = CliRunner(env={"COLUMNS": "1000"}).invoke(app, argv)
            found.append((verb, done.stdout, str(done.exception)))
    return found


def no_rank_file(monkeypatch):
    def refuse(*_):
        raise AssertionError("a file of a rank or a node was read")

    monkeypatch.setattr(read, "read_rank", refuse)
    monkeypatch.setattr(node_samples, "read_nodes", refuse)


@pytest.mark.parametrize("source", [*FOLDERS, "watched", "noisy"], ids=lambda each: Path(each).name)
def test_answers_are_the_same_with_a_cache(source, tmp_path, monkeypatch):
    folder = tmp_path / "study"
    if source == "watched":
        a_watched_folder(folder)
    elif source == "noisy":
        a_noisy_folder(folder)
    else:
        shutil.copytree(source, folder)
    without = answers(folder)
    assert json.loads(without[0][1])["curves"]
    assert not caches(folder)  # A verb that reads changes nothing.
    cache_runs(folder)
    assert caches(folder)
    if not any(run.trace for run in read_study(folder).runs()):
        no_rank_file(monkeypatch)
    assert answers(folder) == without


def test_a_report_reads_no_rank_file_if_there_are_caches(noisy, monkeypatch):
    cache_runs(noisy)
    no_rank_file(monkeypatch)
    write_report(results.all_explained([noisy]), noisy.parent / "r.html")


def test_steps_are_read_when_they_are_used_and_only_then(noisy):
    cache_runs(noisy)
    run = read_study(noisy).runs()[-1]
    complete = read_run(noisy / run.id, run)
    record = load_run(noisy / run.id, run)
    assert record.ranks[0].notes == complete.ranks[0].notes
    assert not {"steps", "lines", "spans"} & vars(record.ranks[1]).keys()
    assert np.array_equal(record.ranks[1].steps.seconds, complete.ranks[1].steps.seconds)
    assert record.ranks[1].spans == complete.ranks[1].spans
    assert record.ranks[1].lines == complete.ranks[1].lines
    assert replace(record.ranks[0], host="x").steps.index.size
    with pytest.raises(AttributeError):
        record.ranks[0].nonsense  # noqa: B018


def test_steps_that_cannot_be_read_are_told_at_each_use(noisy):
    cache_runs(noisy)
    run = read_study(noisy).runs()[0]
    record = load_run(noisy / run.id, run)
    path = rank_file(noisy / run.id, 0)
    path.rename(path.with_suffix(".away"))
    for _ in range(2):
        with pytest.raises(RecordError):
            record.ranks[0].steps  # noqa: B018
    path.with_suffix(".away").rename(path)
    assert record.ranks[0].steps.index.size


def test_without_a_cache_no_steps_stay_in_memory(noisy):
    run = read_study(noisy).runs()[0]
    record = load_run(noisy / run.id, run)
    assert "window" in record.values and "steps" not in vars(record.ranks[0])


def test_every_value_survives_json(noisy):
    for run in read_study(noisy).runs():
        values = cached_value.compute_values(read_run(noisy / run.id, run))
        assert values.keys() == cached_value.FUNCTIONS.keys()
        written = json.loads(json.dumps(cached_value.to_json(values)))
        back = cached_value.from_json(written)
        assert cached_value.to_json(back) == written
        for name in values.keys() - {"window"}:
            assert back[name] == values[name], name
            assert type(back[name]) is type(values[name]), name
        assert np.array_equal(back["window"].step_seconds, values["window"].step_seconds)


def test_every_part_of_a_tuple_is_decoded():
    part = cached_value.to_json(SlowRank(3, "node-0", 0.2))
    kind = tuple[int, SlowRank]
    assert cached_value._decode(kind, [1, part]) == (1, SlowRank(3, "node-0", 0.2))
    assert cached_value._decode(tuple[SlowRank, ...], [part]) == (SlowRank(3, "node-0", 0.2),)
    assert cached_value._decode(tuple[float, ...], [1.0, 2.0]) == (1.0, 2.0)


def test_a_record_whose_ranks_are_changed_has_values_of_its_own(noisy):
    run = read_study(noisy).runs()[-1]
    record = read_run(noisy / run.id, run)
    assert cached_value.compute_values(record)
    assert replace(record, ranks=record.ranks[:1]).values == {}


def rewrite(path, change, fits=True):
    """Change a cache; only what it was made from and its checksum tell that."""
    stored = json.loads(path.read_text())
    change(stored)
    if fits:
        stored["checksum"] = run_cache._checksum(run_cache._encode(stored["content"]))
    path.write_text(json.dumps(stored))


def newer_rank_file(home):
    path = rank_file(home, 0)
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


def longer_rank_file(home):
    with rank_file(home, 0).open("a") as file:
        file.write("\n")


def cache_changed(change, fits=True):
    return lambda home: rewrite(home / run_cache.NAME, change, fits)


def twice_as_long(cache):
    cache["content"]["values"]["window"]["seconds"] *= 2


DAMAGE = {
    "newer rank file": newer_rank_file,
    "longer rank file": longer_rank_file,
    "another node file": lambda home: (home / "node-x.jsonl").write_text(""),
    "rank file gone": lambda home: rank_file(home, 0).unlink(),
    "cut off": lambda home: os.truncate(home / run_cache.NAME, 500),
    "empty": lambda home: (home / run_cache.NAME).write_text(""),
    "binary": lambda home: (home / run_cache.NAME).write_bytes(b"\xff\x00\x80"),
    "nested": lambda home: (home / run_cache.NAME).write_text("[" * 100_000),
    "another number": cache_changed(twice_as_long, fits=False),
    "a list": lambda home: (home / run_cache.NAME).write_text("[1]"),
    "of other code": cache_changed(lambda cache: cache["made_from"].update(code="older")),
    "of another outcome": cache_changed(
        lambda cache: cache["made_from"]["outcome"].update(ended=1)
    ),
    "of another run": cache_changed(lambda cache: cache["made_from"].update(spec="other")),
    "ranks missing": cache_changed(lambda cache: cache["content"]["hosts"].pop()),
    "notes wrong": cache_changed(lambda cache: cache["content"].update(notes=3)),
    "values wrong": cache_changed(lambda cache: cache["content"].update(values=3)),
    "window wrong": cache_changed(
        lambda cache: cache["content"]["values"].update(window={"first": 0})
    ),
    "window text": cache_changed(lambda cache: cache["content"]["values"].update(window="x")),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_cache_that_does_not_fit_is_ignored(damage, noisy):
    cache_runs(noisy)
    run = read_study(noisy).runs()[-1]
    home = noisy / run.id
    DAMAGE[damage](home)
    if damage == "rank file gone":
        assert run_cache.read_cache(home, run) is None
        return
    expected = cached_value.to_json(cached_value.compute_values(read_run(home, run)))
    assert cached_value.to_json(load_run(home, run).values) == expected
    cache_runs(noisy)  # Made anew.
    assert run_cache.read_cache(home, run) is not None or damage.startswith("window")


def test_a_value_that_is_missing_is_computed(noisy):
    cache_runs(noisy)
    run = read_study(noisy).runs()[0]
    rewrite(noisy / run.id / run_cache.NAME, lambda cache: cache["content"]["values"].pop("window"))
    assert cached_value.FUNCTIONS["window"](load_run(noisy / run.id, run)).steps > 0


def test_a_cache_that_cannot_be_written_fails_nothing(noisy):
    run = read_study(noisy).runs()[0]
    (noisy / run.id / run_cache.NAME).mkdir()
    cache_runs(noisy)
    assert results.curves([noisy])
    assert len([path for path in caches(noisy) if path.is_file()]) == 5
    cache_runs(noisy / "nothing here")


@pytest.mark.parametrize("problem", [AttributeError, AssertionError, OSError])
def test_an_unexpected_error_costs_only_the_cache_of_its_run(problem, noisy, monkeypatch):
    broken = read_study(noisy).runs()[0]

    def compute_values(record):
        if record.spec == broken:
            raise problem
        return {}

    monkeypatch.setattr(cached_value, "compute_values", compute_values)
    cache_runs(noisy)
    assert len(caches(noisy)) == 5 and not (noisy / broken.id / run_cache.NAME).exists()


@pytest.mark.parametrize("moment", ["read_run", "compute_values"])
def test_a_file_that_changes_while_its_cache_is_made_leaves_none(moment, noisy, monkeypatch):
    run = read_study(noisy).runs()[0]
    module = {"read_run": loading, "compute_values": cached_value}[moment]
    original = getattr(module, moment)

    def changed_after(*args):
        found = original(*args)
        longer_rank_file(noisy / run.id)
        return found

    monkeypatch.setattr(module, moment, changed_after)
    cache_runs(noisy)
    assert not (noisy / run.id / run_cache.NAME).exists()
    monkeypatch.undo()
    cache_runs(noisy)
    assert run_cache.read_cache(noisy / run.id, run)


def test_a_fitting_cache_is_not_written_again(noisy):
    cache_runs(noisy)
    before = [path.stat().st_mtime_ns for path in caches(noisy)]
    cache_runs(noisy)
    assert [path.stat().st_mtime_ns for path in caches(noisy)] == before


def test_a_run_leaves_its_cache(tmp_path):
    folder = scalewise.run(a_study(topologies=["1x2"]), tmp_path / "study")
    assert len(caches(folder)) == 1


def test_run_writes_missing_caches_of_a_study_that_is_finished(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(study_toml(name="done", topologies=["1x1", "1x2"]))
    folder = scalewise.run("study.toml")
    before = [path.read_text() for path in caches(folder)]
    for path in caches(folder):
        path.unlink()
    assert CliRunner().invoke(app, ["run", "study.toml"]).exit_code == 0
    assert [path.read_text() for path in caches(folder)] == before and len(before) == 2


def test_every_field_of_a_rank_is_read_when_it_is_used():
    # A value on the class would hide that a record without steps has not been read yet.
    assert [part.name for part in fields(RankRecord) if hasattr(RankRecord, part.name)] == []
