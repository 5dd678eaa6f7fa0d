"""Images that cannot be read: a run goes on without them, and says so."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from builders import a_run, a_study
from fake_study import play_all
from paths import RANK_PROGRAMS
from scalewise import datasets
from scalewise.analysis.measure import metrics, scaling_curves, summary
from scalewise.errors import NotEnoughData, RecordError, SpecError
from scalewise.frameworks.data.make_data import synthetic_image
from scalewise.frameworks.torch.input.batches import IGNORED_LABEL
from scalewise.frameworks.torch.task import Task
from scalewise.record.schema import SkippedFiles, skipped_sentence
from scalewise.report.text.doubts import warning_text
from scalewise.study.notices import warn_skipped_files
from start_ranks import start

SCRIPT = RANK_PROGRAMS / "broken_images.py"


def a_set(home, *, train=(), val=()):
    """Make two classes of five and two images of 8 × 8; those that are named are broken.

    Of each split ``0-0`` is the first, which is taken along where a batch needs one.
    """
    for part, count, broken in (("train", 5, train), ("val", 2, val)):
        for label in range(2):
            place = home / part / f"class {label}"
            place.mkdir(parents=True)
            for n in range(count):
                name = f"{label}-{n}"
                path = place / f"{part} {name}.png"
                Image.fromarray(synthetic_image(0, label, n, 8)).save(path)
                if name in broken or broken == "all":
                    path.write_bytes(path.read_bytes()[:40])
    return str(home)


def first_is(*indices):
    """Return a seed whose first of ten samples is one of these: it fills empty batches."""
    return next(n for n in range(99) if np.random.default_rng([n, 0]).permutation(10)[0] in indices)


@pytest.fixture(scope="module", params=[pytest.param(1, marks=pytest.mark.soak), 2])
def trained(request, tmp_path_factory):
    """Train several runs on this many ranks, in one launch."""
    home, ranks = tmp_path_factory.mktemp("unread"), request.param
    some = a_set(home / "some", train=("0-0", "1-3"), val=("0-0",))
    usual = {"topology": f"1x{ranks}", "framework": "torch", "workload": "mlp", "edge": 8}
    runs = {
        "one at a time": {"data": some, "batch": 1, "epochs": 2},
        "two at a time": {"data": some, "batch": 2, "epochs": 2, "remainder": "short"},
        "more room than images": {
            "data": some, "batch": 4, "accumulate": 4, "epochs": 1, "remainder": "short",
            "workers": 1, "seed": first_is(0, 8),
        },
        "nothing to learn": {"data": a_set(home / "none", train="all"), "batch": 2, "epochs": 1},
        "nothing to show": {"data": a_set(home / "blind", val="all"), "batch": 2, "epochs": 1},
    }  # fmt: skip
    asked, answer = home / "runs.json", home / "answer.json"
    asked.write_text(json.dumps({name: {**usual, **run} for name, run in runs.items()}))
    code, words = start(ranks, SCRIPT, asked, answer)
    assert code == 0, words
    return ranks, json.loads(answer.read_text())


@pytest.mark.parametrize("name", ["one at a time", "two at a time"])
def test_a_batch_of_broken_images_teaches_nothing_and_training_goes_on(trained, name):
    ranks, runs = trained
    found = runs[name]
    assert all(map(math.isfinite, found["losses"])) and found["finite"] and found["moved"]
    assert sum(found["samples"]) == 2 * 8
    assert found["left out"] == ["train 0-0", "train 1-3", "val 0-0"]
    if (ranks, name) == (1, "one at a time"):
        assert found["losses"].count(0.0) >= 4


def test_a_broken_sample_that_is_only_taken_along_is_not_subtracted(trained):
    found = trained[1]["more room than images"]
    assert sum(found["samples"]) == 8 and all(map(math.isfinite, found["losses"]))


@pytest.mark.parametrize("name", ["two at a time", "more room than images"])
def test_validation_counts_what_can_be_read(trained, name):
    accuracy, loss, samples = trained[1][name]["validation"]
    assert samples == 3 and math.isfinite(loss)
    assert accuracy in [pytest.approx(n / 3) for n in range(4)]


def test_nothing_but_broken_images_moves_no_weight(trained):
    found = trained[1]["nothing to learn"]
    assert set(found["losses"]) == {0.0} and sum(found["samples"]) == 0
    assert not found["moved"]
    assert found["validation"][2] == 4


def test_a_validation_without_a_whole_image_says_nothing(trained):
    found = trained[1]["nothing to show"]
    assert found["validation"] is None and found["moved"]
    assert found["left out"] == ["val 0-0", "val 0-1", "val 1-0", "val 1-1"]


def test_the_mean_is_over_the_samples_that_count():
    logits = torch.randn(6, 4, requires_grad=True)
    labels = torch.tensor([1, IGNORED_LABEL, 3, 0, IGNORED_LABEL, 2])
    careful, plain = Task(None, None, may_ignore_labels=True), Task(None, None)
    torch.testing.assert_close(careful.loss(logits, labels), plain.loss(logits, labels))
    nothing = careful.loss(logits, torch.full((6,), IGNORED_LABEL))
    nothing.backward()
    assert nothing.item() == 0.0 and not logits.grad.any()


def told(*paths, count=None):
    return {"count": count or len(paths), "paths": list(paths)}


@pytest.mark.parametrize(
    ("ranks", "says"),
    [
        ([None, None], ""),
        ([told("a"), None], "1 image that cannot be read, a"),
        ([told("b", "c"), told("a", "b")], "3 images that cannot be read, the first is a"),
        ([told("b", count=900)], "at least 900 images that cannot be read, the first is b"),
    ],
)
def test_files_of_several_ranks_are_counted_once(ranks, says):
    skipped = [rank and SkippedFiles(**rank) for rank in ranks]
    assert skipped_sentence(skipped) == (f"left out: {says}" if says else "")


def test_the_end_of_a_study_tells_of_files_that_were_left_out(tmp_path):
    run, heard = a_run(topology="1x2", data="pets"), []
    home = tmp_path / run.id
    home.mkdir()
    job = {
        "schema": 1,
        "launcher": "local",
        "id": "1",
        "folder": str(home),
        "attempt": 2,
        "world": 2,
    }
    (home / "job.json").write_text(json.dumps(job))
    for rank, paths in enumerate((["pets/b.jpg"], ["pets/a.jpg", "pets/b.jpg"])):
        lines = [
            {"attempt": 1, "left_out": told("pets/old.jpg")},
            {"attempt": 2, "left_out": told(*paths)},
            {"attempt": 2, "ended": 1.0},
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (home / f"rank-{rank:05d}.jsonl").write_text(text)

    class Hears:
        def warn(self, problem):
            heard.append(problem)

    warn_skipped_files([run], tmp_path, Hears())
    (problem,) = heard
    assert isinstance(problem, RecordError) and "data check pets" in problem.hint
    words = "left out: 2 images that cannot be read, the first is pets/a.jpg"
    assert str(problem).endswith(words)


def test_what_is_measured_tells_of_files_that_were_left_out(tmp_path):
    study = a_study(topologies=["1x1"], repeats=2)
    played = list(play_all(study, tmp_path))

    def warnings(*paths_by_run):
        records = []
        for record, paths in zip(played, paths_by_run, strict=True):
            lines = ({"left_out": told(*paths)},) if paths else ()
            ranks = [replace(rank, lines=(*rank.lines, *lines)) for rank in record.ranks]
            records.append(replace(record, ranks=tuple(ranks)))
        (curve,) = scaling_curves(study, records)
        return [warning_text(each) for each in curve.points[0].warnings]

    words = "left out: 2 images that cannot be read, the first is a"
    assert words in warnings(["b"], ["a", "b"])
    assert not any("left out" in text for text in warnings([], []))


def test_a_run_in_which_no_sample_counts_says_why(monkeypatch):
    monkeypatch.setattr(metrics, "steady_window", lambda record: SimpleNamespace(samples=0))
    spec = a_run(framework="torch", workload="vit", data="pets")
    with pytest.raises(NotEnoughData, match="no file of pets can be read, so no sample"):
        summary._point(metrics.Repeats([SimpleNamespace(spec=spec)]))


TIMED = {"workers": [0], "batch": 4, "edge": 8, "length": None, "augment": "none", "seconds": 0.01}


def test_timing_a_loader_tells_of_files_that_were_left_out(tmp_path):
    data = a_set(tmp_path / "some", train=("0-0",))
    found = datasets.bench(data, TIMED, lambda done, total: None)
    assert found.left_out == (f"{data}/train/class 0/train 0-0.png",)
    assert str(found).endswith("1 image that cannot be read, " + found.left_out[0])


def test_a_set_of_which_nothing_can_be_read_has_no_rate(tmp_path):
    data = a_set(tmp_path / "none", train="all")
    with pytest.raises(SpecError, match=f"no file of {data} can be read") as refused:
        datasets.bench(data, TIMED, lambda done, total: None)
    assert "data check" in refused.value.hint
