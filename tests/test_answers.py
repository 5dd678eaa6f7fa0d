"""Today's answers stay the same: stored ones are compared with those of the code as it is.

``python tests/test_answers.py`` writes them anew, for a change that means to change them. The
folders in ``tests/folders`` were written by version 0.1.0 and must stay readable.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from scalewise.cli import app

TESTS = Path(__file__).parent
STORED = TESTS / "answers"
FOLDERS = sorted(path for path in (TESTS / "folders").iterdir())
TABLES = sorted((TESTS.parent / "studies" / "published").glob("*.csv"))
VERBS = {
    "measure": [],
    "explain": [],
    "predict": ["--at", "8", "--at", "64"],
    "advise": ["--for", "efficiency=0.5"],
}
QUESTIONS = [(source, verb) for source in FOLDERS for verb in VERBS] + [
    (source, verb) for source in TABLES for verb in VERBS if verb != "explain"
]


def answer(source: Path, verb: str) -> Any:
    """Return what a verb answers about a folder or a table."""
    done = CliRunner().invoke(app, [verb, str(source), *VERBS[verb], "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


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
    if isinstance(old, list) and isinstance(new, list) and not _told(old):
        if len(old) != len(new):
            return [f"{where} has {len(new)} entries, not {len(old)}"]
        both = (differences(*pair, f"{where}[{k}]") for k, pair in enumerate(zip(old, new)))
        return [line for lines in both for line in lines]
    if isinstance(old, float) and isinstance(new, (int, float)):
        close = math.isclose(old, new, rel_tol=1e-4, abs_tol=1e-9)
        return [] if close else [f"{where} is {new}, not {old}"]
    if old == new or (_told(old) and type(old) is type(new)):
        return []
    return [f"{where} is {new!r}, not {old!r}"]


def _told(value: Any) -> bool:
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
    STORED.mkdir(exist_ok=True)
    for source, verb in QUESTIONS:
        stored(source, verb).write_text(json.dumps(answer(source, verb), indent=1) + "\n")
