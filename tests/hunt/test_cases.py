"""Cases that once went wrong in a hunt go right, and a hunt finds what goes wrong."""

from pathlib import Path
from typing import Any

import pytest

import hunt


def _marks(ground: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a ground's cases: torch ranks and Slurm have targets of their own."""
    marks = {"torch": pytest.mark.training, "slurm": pytest.mark.slurm}
    return [marks[need] for need in hunt.needs(ground) if need in marks]


KEPT = [
    pytest.param(ground, case, id=name, marks=_marks(ground))
    for name, ground, case in hunt.kept_cases()
]


@pytest.mark.parametrize(("ground", "case"), KEPT)
def test_a_kept_case_goes_right(ground: str, case: Any) -> None:
    if lacks := hunt.missing_needs(ground):
        pytest.skip(f"this machine has no {', '.join(lacks)}")
    assert hunt.try_case(ground, case) is None


@pytest.fixture
def sample_ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make a ground in which one case goes wrong, one hangs, one ends its process."""
    folder = tmp_path / "tests" / "hunt"
    (folder / "grounds").mkdir(parents=True)
    (folder / "hunt.py").write_text(Path(hunt.__file__).read_text())
    (folder / "grounds" / "sample.py").write_text(
        "import os, time\n"
        "LIMIT = 2.0\n"
        "def draw(random):\n    return {'kind': random.choice('aabbccd'), 'x': random.random()}\n"
        "def try_case(case, folder):\n"
        "    if case['kind'] == 'b':\n        return 'File \"/a/b/c.py\", line 1'\n"
        "    if case['kind'] == 'c':\n        os._exit(3)\n"
        "    if case['kind'] == 'd':\n        time.sleep(60)\n"
    )
    return str(folder / "hunt.py")


def test_a_hunt_keeps_what_went_wrong(sample_ground: str) -> None:
    import json
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, sample_ground, "--cases", "12", "--jobs", "2", "--seed", "6"],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    kept = [json.loads(path.read_text()) for path in Path(sample_ground).parent.glob("cases/*")]
    wrong = {each["case"]["kind"]: each["wrong"] for each in kept}
    assert wrong == {
        "b": 'File "c.py", line 1', "c": "ended the hunt's process", "d": "not over after 2.0 s",
    }  # fmt: skip
    assert "sample: 12 cases" in done.stdout and "seed 6" in done.stdout
