"""Answers stay the same: stored ones are compared with those of the code as it is.

Values are compared in the JSON of each verb (``tests/answers``), sentences in its text
(``tests/golden/text``). ``python tests/test_answers.py`` writes both anew, for a change that
means to change them. The folders in ``tests/folders`` were written by version 0.1.0 and must
stay readable.
"""

import contextlib
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import tomllib
from typer.testing import CliRunner

from scalewise.cli import app
from scalewise.study.load_study import load

TESTS = Path(__file__).parent
STORED = TESTS / "answers"
TEXTS = TESTS / "golden" / "text"
RUN_IDS = json.loads((TESTS / "golden" / "run_ids.json").read_text())
"""Ids of the runs of each study file, and of each of its variants, as version 0.1.0 made them."""
FOLDERS = sorted(path for path in (TESTS / "folders").iterdir())
STUDIES = TESTS.parent / "studies"
TABLES = sorted((STUDIES / "published").glob("*.csv"))
VERBS = {
    "measure": [],
    "explain": [],
    "predict": ["--at", "8", "--at", "64"],
    "advise": ["--for", "efficiency=0.5"],
}
QUESTIONS = [(source, verb) for source in FOLDERS for verb in VERBS] + [
    (source, verb) for source in TABLES for verb in VERBS if verb != "explain"
]

SHOWN = [(source, verb) for source, verb in QUESTIONS if source in (*FOLDERS, TABLES[0])]
"""The questions whose text is stored too."""


def ask(source: Path, verb: str, *options: str) -> str:
    """Return what a verb prints about a folder or a table; no line of it is wrapped."""
    argv = [verb, source.name, *VERBS[verb], *options]
    with contextlib.chdir(source.parent):
        done = CliRunner(env={"COLUMNS": "1000"}).invoke(app, argv)
    assert done.exit_code == 0, done.output
    return done.stdout


def answer(source: Path, verb: str) -> Any:
    """Return the values that a verb answers about a folder or a table."""
    return json.loads(ask(source, verb, "--json"))


def text(source: Path, verb: str) -> Path:
    """Return where the text of an answer is stored."""
    return TEXTS / f"{source.stem}.{verb}.txt"


def words(text: str) -> list[str]:
    """Return the lines of a text, ``#`` for each number: values are compared in the JSON."""
    plain = re.sub(r"[-−+]?\d[\d,.]*(e-?\d+)?", "#", text)
    return [" ".join(line.split()) for line in plain.replace("─", "").splitlines()]


def stored(source: Path, verb: str) -> Path:
    """Return where the answer is stored."""
    return STORED / f"{source.stem}.{verb}.json"


def differences(old: Any, new: Any, where: str = "") -> list[str]:
    """Return where two answers differ, but for sentences; numbers may differ by rounding."""
    if isinstance(old, dict) and isinstance(new, dict):
        missing = [f"{where}.{key} is gone" for key in old.keys() - new.keys()]
        both = (
            differences(old[key], new[key], f"{where}.{key}") for key in old.keys() & new.keys()
        )
        return missing + [line for lines in both for line in lines]
    if isinstance(old, list) and isinstance(new, list) and not _is_sentence(old):
        if len(old) != len(new):
            return [f"{where} has {len(new)} entries, not {len(old)}"]
        both = (differences(*pair, f"{where}[{k}]") for k, pair in enumerate(zip(old, new)))
        return [line for lines in both for line in lines]
    if isinstance(old, float) and isinstance(new, (int, float)):
        close = math.isclose(old, new, rel_tol=1e-4, abs_tol=1e-9)
        return [] if close else [f"{where} is {new}, not {old}"]
    if old == new or (_is_sentence(old) and type(old) is type(new)):
        return []
    return [f"{where} is {new!r}, not {old!r}"]


def _is_sentence(value: Any) -> bool:
    """Say whether a value is a sentence, or a list of sentences: these may be worded anew."""
    if isinstance(value, list):
        return bool(value) and all(isinstance(each, str) and " " in each for each in value)
    return isinstance(value, str) and " " in value


@pytest.mark.parametrize(
    ("source", "verb"), QUESTIONS, ids=lambda each: getattr(each, "stem", each)
)
def test_an_answer_is_what_it_was(source, verb):
    old = json.loads(stored(source, verb).read_text())
    assert differences(old, answer(source, verb)) == []


def test_every_stored_answer_is_asked_for():
    assert {path.name for path in STORED.iterdir()} == {stored(*each).name for each in QUESTIONS}
    assert {path.name for path in TEXTS.iterdir()} == {text(*each).name for each in SHOWN}


@pytest.mark.parametrize(("source", "verb"), SHOWN, ids=lambda each: getattr(each, "stem", each))
def test_a_text_is_what_it_was(source, verb):
    assert words(ask(source, verb)) == words(text(source, verb).read_text())


@pytest.mark.parametrize("name", RUN_IDS)
def test_a_run_has_the_id_it_had(name):
    file, _, variant = name.partition(":")
    study = load(STUDIES / file, variant or None)
    assert [run.id for run in study.runs()] == RUN_IDS[name]


def test_every_study_file_has_its_ids_stored():
    names = set()
    for path in STUDIES.glob("*.toml"):
        variants = tomllib.loads(path.read_text()).get("variant", ())
        names |= {path.name, *(f"{path.name}:{variant}" for variant in variants)}
    assert names == set(RUN_IDS)


def test_a_difference_is_seen():
    old = {"points": [{"devices": 2, "efficiency": 0.9, "reason": "it is slow"}], "law": None}
    same = {"points": [{"devices": 2, "efficiency": 0.90001, "reason": "the input is slow"}]}
    assert differences(old, {**same, "law": None, "new": 1}) == []
    assert differences(old, same) == [".law is gone"]
    same["points"][0]["devices"] = 3
    assert differences(old, {**same, "law": None}) == [".points[0].devices is 3, not 2"]


def test_every_second_of_a_requeued_run_is_in_its_table():
    (curve,) = answer(TESTS / "folders" / "requeued", "measure")["curves"]
    for point in curve["points"]:
        parts = {name: part["value"] for name, part in point["complete"].items()}
        assert sum(parts.values()) == pytest.approx(point["time"]["value"], abs=0.01)
        assert parts["unexplained"] < 0.02 * point["time"]["value"]
        if point["devices"] > 1:  # These two were requeued after about 40 s.
            assert parts["earlier"] > 40


if __name__ == "__main__":
    for source, verb in QUESTIONS:
        path, new = stored(source, verb), answer(source, verb)
        if not path.exists() or differences(json.loads(path.read_text()), new):
            path.write_text(json.dumps(new, indent=1) + "\n")
    for source, verb in SHOWN:
        path, shown = text(source, verb), ask(source, verb)
        if not path.exists() or words(path.read_text()) != words(shown):
            path.write_text(shown)
