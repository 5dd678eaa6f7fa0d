"""The verb certify, and what other verbs say about a study that has a certificate."""

import json

import pytest

from certificate_folder import certified_study, record_certificate
from scalewise import api
from unsealed import unseal

SUMMED = "differs from step 0 in all 6 layers: factor 2.00 on 2 devices: gradients are summed"


def test_an_equal_training_is_certified_and_every_verb_says_so(scalewise, tmp_path):
    folder = certified_study(tmp_path / "study")
    code, out, err = scalewise("certify", folder)
    assert code == 0, err
    words = " ".join(out.split())
    assert "Certificate: equal to 1 device" in words
    assert "gradients and updates of 6 layers in steps 0, 1, 2, 8, 9, 20 are those of" in words
    assert "Dropout was switched off in 1 layer." in words
    says = "2 devices learn what 1 device learns: gradients and updates of 6 layers in 6 steps"
    for verb, label in (("summary", "Is it correct?"), ("explain", "correct:")):
        _, out, _ = scalewise(verb, folder)
        assert f"{label} {says}" in " ".join(out.split())
        assert "not checked" not in out
    for name in ("page.html", "slides.html", "evidence.tex"):
        options = ["--slides"] if "slides" in name else ["--evidence"] if "evidence" in name else []
        code, _, err = scalewise("report", folder, *options, "-o", name)
        assert code == 0, err
        assert "devices learn what 1" in (tmp_path / name).read_text()
    _, out, _ = scalewise("summary", folder, "--json")
    (certificate,) = json.loads(out)["summaries"][0]["certificates"]
    assert (certificate["verdict"], certificate["cause"]) == ("equal", None)


def test_a_training_that_differs_blocks_advice_on_it(scalewise, tmp_path):
    folder = certified_study(tmp_path / "study", fault="summed")
    code, out, err = scalewise("certify", folder)
    assert code == 4
    assert SUMMED in " ".join(out.split())
    assert "fix: Average gradients once" in " ".join(out.split())
    assert "1 of 1 comparisons differ" in err
    for verb in ("summary", "explain", "measure"):
        _, out, _ = scalewise(verb, folder)
        words = " ".join(out.split())
        assert "Not reliable [training-differs]: 2 devices: the training is not that of 1" in words
        assert SUMMED in words
    code, out, err = scalewise("advise", folder, "--for", "time")
    assert (code, out) == (1, "")
    assert "[training-differs]" in err and "--despite training-differs" in err
    code, _, _ = scalewise("advise", folder, "--for", "time", "--despite", "training-differs")
    assert code == 0


def test_what_cannot_be_told_is_a_note(scalewise, tmp_path):
    folder = certified_study(tmp_path / "study", global_batch=32)
    for path in (folder / "certificate").glob("*/rank-00001.jsonl"):
        unseal(path.parent)
        text = path.read_text()
        path.write_text(text.replace('"fingerprints":["', '"fingerprints":["0'))
    code, out, _ = scalewise("certify", folder)
    assert code == 0
    assert "cannot tell, because the samples of step 0 are not those of" in " ".join(out.split())
    code, out, _ = scalewise("summary", folder)
    assert code == 0
    assert "Is it correct? On 2 devices: cannot tell, because" in " ".join(out.split())


def test_json_names_cause_step_layer_and_factor(scalewise, tmp_path):
    record_certificate(tmp_path / "certificate", fault="one layer summed")
    code, out, _ = scalewise("certify", tmp_path / "certificate", "--json")
    (values,) = json.loads(out)["certificates"]
    assert code == 4
    assert (values["cause"], values["step"], values["layer"]) == ("summed", 0, "fc2.bias")
    assert values["factor"] == pytest.approx(2)
    (certificate,) = api.certify(tmp_path / "certificate")
    assert certificate.cause == "summed"


def test_later_folders_are_compared_with_the_first(scalewise, tmp_path):
    record_certificate(tmp_path / "before" / "certificate")
    record_certificate(tmp_path / "after" / "certificate", fault="learning rate")
    code, out, _ = scalewise("certify", "before", "after", "--json")
    verdicts = [(item["verdict"], item["cause"]) for item in json.loads(out)["certificates"]]
    assert code == 4
    assert verdicts == [("equal", None), ("equal", None), ("differs", "learning-rate")]


def test_a_folder_without_a_certificate_is_refused(scalewise, tmp_path):
    code, _, err = scalewise("certify", tmp_path)
    assert code == 1
    assert "has no certificate" in err and "scalewise certify --on 1,2 -- train.py" in err
    code, _, err = scalewise("certify", "train.py")
    assert code == 1
    assert "a program needs --on" in err


def test_an_unfinished_run_is_named(scalewise, tmp_path):
    record_certificate(tmp_path / "certificate")
    for path in (tmp_path / "certificate").glob("*/outcome.json"):
        if '"ranks": 2' in path.read_text():
            path.unlink()
    code, out, _ = scalewise("certify", tmp_path / "certificate")
    assert code == 0
    assert "has no sketches: the run has not finished" in " ".join(out.split())


def test_a_missing_folder_is_told_with_what_to_give(scalewise):
    code, _, err = scalewise("certify", "runs/nothing")
    assert code == 1
    assert "error: there is no runs/nothing" in err
    assert "a folder that `certify` has made" in err
