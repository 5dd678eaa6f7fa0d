"""The ways of ``predict`` on the command line: simulated from one run, by published curves."""

import json
from pathlib import Path

import pytest

from builders import a_study
from fake_study import a_sweep, a_watched_folder, play_all
from guard_cases import SAID
from paths import DOCS
from scalewise import api
from scalewise.catalog.curves import find_curves
from scalewise.errors import DoubtfulData
from scalewise.record.write import write_json
from scalewise.spec import Topology

LINKS = ("--link-inside", "200GB/s,5us", "--link-between", "25GB/s,20us", "--devices-per-node", "8")


def a_folder(folder, **changes):
    """Play a fake study into a folder that the command line reads."""
    study = a_study(**{"steps": 40, "batch": 32} | changes)
    write_json(folder / "study.json", {"schema": 1, **study.to_dict()})
    list(play_all(study, folder))
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The folder of a study on one device."""
    return a_folder(tmp_path_factory.mktemp("alone"), topologies=["1x1"])


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    """The folder of a study on 1, 2 and 4 devices of one node, twice each."""
    return a_folder(tmp_path_factory.mktemp("grown"), repeats=2)


def test_one_run_alone_is_simulated(alone, scalewise):
    code, out, err = scalewise("predict", alone, "--at", "8,16384", "--simulate", *LINKS,
                               "--gradients", "100MB")  # fmt: skip
    assert (code, err) == (0, "")
    assert "a study, simulated" in out and "16,384 devices (2048x8)" in out
    assert "! arrival times of gradients were not recorded" in out


def test_one_run_alone_is_refused_without_and_told_the_way(alone, scalewise):
    code, _, err = scalewise("predict", alone, "--at", "8")
    assert code == 1 and "a prediction needs 2 device counts, got 1" in err
    assert "or simulate from this run: scalewise predict FOLDER --at 16 --simulate --dev" in err


def test_json_of_a_simulation_has_the_documented_fields(grown, scalewise):
    words = ("--at", "4,64", "--simulate", *LINKS, "--gradients", "100MB", "--json")
    code, out, _ = scalewise("predict", grown, *words)
    told = json.loads(out)
    assert code == 0 and told["schema"] == 1 and told["from"]["topology"] == "1x1"
    assert told["points"][1]["topology"] == "8x8" and told["points"][1]["anchored"] > 0
    assert sum(told["points"][1]["phases"].values()) == pytest.approx(told["points"][1]["step"])
    assert [check["devices"] for check in told["checks"]] == [2, 4]
    reference = (DOCS / "reference/json.md").read_text()
    section = reference.partition("### A simulation")[2].partition("\n## ")[0]
    rows = (told, told["points"][0], told["checks"][0], told["links"], told["from"])
    names = {name for row in rows for name in row} | set(told["points"][0]["phases"])
    names -= {"schema", "study", "where", "warnings"}
    assert [name for name in sorted(names) if f"`{name}`" not in section] == []


def test_sweeps_are_read_from_what_doctor_keeps(alone, scalewise, tmp_path):
    (tmp_path / "one.json").write_text(json.dumps(a_sweep()))
    (tmp_path / "two.json").write_text(json.dumps(a_sweep(Topology(2, 2))))
    words = ("--collectives", "one.json", "--collectives", "two.json", "--gradients", "1MB")
    code, out, err = scalewise("predict", alone, "--at", "2,8", "--simulate", *words)
    assert (code, err) == (0, "")
    assert "On 2: communication was timed on 1x2; the slow-down between" in out
    assert "On 8: communication was timed on 1x2, 2x2, and is extrapolated" in out


@pytest.mark.parametrize(
    ("words", "problem", "hint"),
    [
        ("FOLDER --at 8 --simulate", "needs the links between devices", "--collectives"),
        (
            "FOLDER --at 8 --link-inside 1GB/s,5us",
            "--link-inside: only for a simulation",
            "--simulate",
        ),
        ("FOLDER --at 8 --gradients 1MB", "--gradients: only for a simulation", "--simulate"),
        ("FOLDER --at 8 --simulate --collectives no.json", "cannot read no.json", "doctor"),
        ("FOLDER --at 8 --simulate --collectives bad.json", "bad.json is no sweep", "doctor"),
        ("FOLDER --at 8 --simulate --collectives list.json", "list.json: this is no", "doctor"),
        ("FOLDER --at 8 --simulate --collectives half.json", "half.json: this is no", "doctor"),
        ("FOLDER --at 8 --simulate --collectives bytes.json", "bytes.json is no sweep", "doctor"),
        ("FOLDER --at 8 --simulate --collectives .", "cannot read .", "doctor"),
        ("FOLDER --at 0 --simulate LINKS", "from 1 to", "devices"),
        ("FOLDER --at x --simulate LINKS", "--at takes whole numbers of devices", "--at"),
        ("FOLDER --at 12 --simulate LINKS", "12 devices do not fill nodes of 8", "--at 8,16"),
        ("FOLDER --at 8 --simulate LINKS", "how many bytes of gradients", "--gradients"),
        ("FOLDER --at 8 --simulate LINKS --gradients 10TB", "at most 1TB, got '10TB'", "100MB"),
        ("FOLDER --at 8 --simulate LINKS --gradients 9", "'9' has no unit", "100MB"),
        ("FOLDER --at 8 --simulate LINKS --algorithm rings", "got 'rings'", "'ring'"),
        ("FOLDER --at 8 --simulate LINKS -o a.png", "-o: not used by a simulation", "leave"),
        (
            "FOLDER --at 8 --simulate LINKS --scaling weak",
            "--scaling: not used by a simulation",
            "leave",
        ),
        ("FOLDER --at 8 --simulate LINKS --where strategy=x", "0 curves of", "--where"),
        ("a.csv --at 8 --simulate LINKS", "a.csv holds results only", "scalewise run"),
        ("FOLDER", "predict needs --at", "--at 16,32"),
        ("--at 8", "predict needs a study folder or a CSV file", "--like"),
        ("", "predict needs a study folder or a CSV file", "--like"),
        ("--like !?", "--like takes words, got '!?'", "resnet50"),
        ("--like resnet51", "no published curve matches 'resnet51'", "did you mean resnet50"),
        ("--like resnet50 --at 0", "from 1 to", ""),
        (
            "--like resnet50 --simulate",
            "--simulate: not used with published curves alone",
            "folder",
        ),
        ("--like resnet50 -o a.png", "-o: not used with published curves alone", "folder"),
        ("a.csv --at 8 --like zzzzzzzzzz", "no published curve matches", "nvidia-dle"),
    ],
)
def test_nonsense_is_one_sentence(alone, scalewise, tmp_path, words, problem, hint):
    (tmp_path / "a.csv").write_text("devices,throughput\n1,240\n2,464\n")
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "half.json").write_text('{"hosts": ["a"], "ranks": 2}')
    given = words.replace("LINKS", " ".join(LINKS)).split()
    code, out, err = scalewise("predict", *(alone if w == "FOLDER" else w for w in given))
    assert (code, out) == (1, "")
    assert problem in err and hint in err and "Traceback" not in err
    assert err.count("error: ") == 1


def test_published_curves_are_listed_with_their_sources(scalewise):
    code, out, err = scalewise("predict", "--like", "vit-h/14 throughput", "--at", "16,64")
    assert (code, err) == (0, "")
    assert "seed-mn5-vith14-micro-224-throughput" in out and "MareNostrum5" in out
    assert "seed: Supercomputing for AI (J. Torres, BSC), chapter 12 (2025)" in out
    assert "67.8 % on 32" in out and "80.1 %" in out


def test_a_prediction_stands_beside_curves_like_it_unchanged(scalewise, tmp_path):
    Path("one-node.csv").write_text("devices,throughput\n1,240\n2,464\n4,892\n")
    words = (
        "predict",
        "one-node.csv",
        "--scaling",
        "weak",
        "--devices-per-node",
        "4",
        "--at",
        "32",
    )
    plain, beside = scalewise(*words, "--json")[1], scalewise(*words, "--like", "bert", "--json")[1]
    told = json.loads(beside)
    mixed = told.pop("like")
    assert told == json.loads(plain)
    assert mixed["words"] == "bert" and mixed["growth"] == 4
    assert mixed["kept"]["least"] < mixed["kept"]["median"] < mixed["kept"]["most"]
    assert set(mixed["values"]) == {"32"} and mixed["values"]["32"]["worst"] > 892
    code, out, _ = scalewise(*words, "--like", "bert")
    assert (
        code == 0
        and "do not change the prediction" in out
        and "If this curve continued as the published curves did" in out
    )


def test_json_of_published_curves_has_the_documented_fields(scalewise):
    code, out, _ = scalewise("predict", "--like", "resnet50", "--json")
    told = json.loads(out)
    assert code == 0 and len(told["curves"]) == len(find_curves("resnet50"))
    first = told["curves"][0]
    assert first["source"]["title"] and first["points"][0][0] >= 1
    assert set(first["efficiency"]) == {str(count) for count, _ in first["points"]}
    reference = (DOCS / "reference/json.md").read_text()
    section = reference.partition("### Published curves")[2].partition("\n## ")[0]
    names = {*told, *first, *first["source"]} - {"schema"}
    assert [name for name in sorted(names) if f"`{name}`" not in section] == []


NOT_CORRECT = (
    "same samples", "no exchange", "drift", "step counts", "set_epoch",
)  # fmt: skip
"""The guards that call a training not correct."""
ANSWERS = {
    "advise": ("advise", "--for", "time"),
    "predict": ("predict", "--at", "8"),
    "simulate": ("predict", "--at", "8", "--simulate", *LINKS, "--gradients", "100MB"),
}


@pytest.mark.parametrize("words", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("fault", NOT_CORRECT)
def test_an_answer_from_runs_that_are_not_correct_says_so_first(words, fault, scalewise, tmp_path):
    folder = a_watched_folder(tmp_path / "runs", fault)
    verb, *options = words
    code_name = fault.replace(" ", "-").replace("_", "-")
    code, out, err = scalewise(verb, folder, *options)
    assert code == 1 and not out
    assert f"{verb} gives no answer [{code_name}]: " in err and SAID[fault] in err
    assert f"or insist with --despite {code_name}" in err
    code, out, _ = scalewise(verb, folder, *options, "--despite", code_name)
    first, fix, *_ = out.splitlines()
    assert code == 0 and first.startswith(f"Not reliable [{code_name}]: ")
    assert SAID[fault] in first and first.endswith(" (on 2 devices).")
    assert fix.startswith("  fix: ")
    for shown in ("explain", "measure"):
        _, text, _ = scalewise(shown, folder)
        assert first in text.splitlines()[0]
    _, told, _ = scalewise(verb, folder, *options, "--json", "--despite", code_name)
    (sentence,) = json.loads(told)["not_correct"]
    assert sentence in first
    doubt = json.loads(told)["doubts"][0]
    assert (doubt["code"], doubt["severity"], doubt["devices"]) == (code_name, "blocks", 2)
    assert doubt["text"] == sentence and doubt["mend"] in fix


@pytest.mark.parametrize("words", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_from_correct_runs_says_nothing_of_it(words, scalewise, tmp_path):
    folder = a_watched_folder(tmp_path / "runs")
    verb, *options = words
    _, explained, _ = scalewise("explain", folder)
    assert "is it correct? The learning rate" in explained  # A question is no fault.
    _, out, _ = scalewise(verb, folder, *options)
    assert "Not reliable" not in out
    _, told, _ = scalewise(verb, folder, *options, "--json")
    assert json.loads(told)["not_correct"] == []


def test_answers_in_python_carry_that_runs_are_not_correct(tmp_path):
    folder = a_watched_folder(tmp_path / "runs", "drift")
    with pytest.raises(DoubtfulData, match="drift"):
        api.predict(folder, 8)
    with pytest.raises(DoubtfulData, match="drift"):
        api.advise(folder, "time")
    (fault,) = api.predict(folder, 8, despite=["drift"]).not_correct
    assert SAID["drift"] in fault
    assert api.advise(api.measure(folder), "time", despite=["drift"]).not_correct == (fault,)
    assert api.predict(api.curve([(1, 1.0), (2, 2.0)]), 4).not_correct == ()
