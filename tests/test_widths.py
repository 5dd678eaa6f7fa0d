"""Answers fit the width: no line is longer than 80 or 100 columns, and no number is cut."""

import contextlib
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from paths import ROOT
from scalewise.cli import app

FOLDERS = ROOT / "tests" / "folders"
PUBLISHED = ROOT / "studies" / "published"
TINY = PUBLISHED / "vit-h14-tiny-224.csv"
TIMES = PUBLISHED / "resnet152v2-cifar10.csv"
COLOUR = re.compile(r"\x1b\[[\d;]*m")
QUESTIONS = {
    **{
        f"{verb} {folder}": (verb, FOLDERS / folder, *options)
        for folder in ("built-in", "requeued", "script")
        for verb, *options in [
            ("measure",),
            ("explain", "--price", "2.50"),
            ("predict", "--at", "8,64"),
            ("advise", "--for", "efficiency=0.5", "--up-to", "8", "--price", "2.50"),
        ]
    },
    "measure tables": ("measure", TINY, TIMES),
    "predict times": ("predict", TIMES, "--at", "4,8,16,32,64,128,256,512"),
    "predict table": ("predict", TINY, "--scaling", "weak", "--at", "16,64", "--like", "vit"),
    "advise times": ("advise", TIMES, "--for", "time"),
    "advise everything": (
        "advise", TINY, "--scaling", "weak", "--devices-per-node", "4", "--batch", "64",
        "--for", "deadline=6h", "--target", "samples=50e6 at 512", "--critical-batch", "8192",
        "--interrupted-every", "12h per node", "--save", "30s", "--restart", "3min",
        "--wait", "8=2min,32=15min", "--price", "0.9", "--runs", "8", "--worth", "32",
    ),
    **{f"summary {source.stem}": ("summary", source)
       for source in (FOLDERS / "built-in", FOLDERS / "script", TINY, TIMES)},
    "plan": ("plan", ROOT / "studies" / "fake-cluster.toml", "--price", "2.50"),
    "status": ("status", FOLDERS / "requeued"),
    "published curves": ("predict", "--like", "resnet50 v100"),
    "catalog": ("catalog",),
}  # fmt: skip

WITHOUT_TABLES = ("plan", "status", "summary")


def ask(words: tuple[object, ...], width: int, *, terminal: bool) -> list[str]:
    """Return the lines that a verb prints at a width, without their colours."""
    runner = CliRunner(env={"COLUMNS": f"{width}", "FORCE_COLOR": "1" if terminal else None})
    with contextlib.chdir(Path(__file__).parent):
        done = runner.invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    assert ("\x1b" in done.stdout) == terminal or words[0] in WITHOUT_TABLES
    return COLOUR.sub("", done.stdout).splitlines()


def words_with_digits(lines: list[str]) -> set[str]:
    """Return the words that have a digit; not those of the line that counts left-out columns."""
    text = " ".join(line for line in lines if not line.endswith(": --all"))
    return {word for word in text.split() if re.search(r"\d", word)}


def is_unbreakable(line: str) -> bool:
    """Say whether a line is a command to copy, an address or a path, on a line of its own."""
    text = line.strip()
    return text.startswith(("`", "scalewise ", "OMP_NUM_THREADS=")) or not re.search(r"\s", text)


@pytest.mark.parametrize("everything", [False, True], ids=["default", "all"])
@pytest.mark.parametrize("name", QUESTIONS)
def test_every_line_fits_and_no_number_is_cut(name, everything):
    words = QUESTIONS[name]
    if everything and words[0] in WITHOUT_TABLES:
        pytest.skip("it has no --all")
    options = ("--all",) if everything else ()
    whole = words_with_digits(ask((*words, *options), 1000, terminal=False))
    for width, terminal in ((80, True), (100, False)):
        lines = ask((*words, *options), width, terminal=terminal)
        assert [line for line in lines if len(line) > width and not is_unbreakable(line)] == []
        assert words_with_digits(lines) <= whole


def test_a_pipe_has_100_columns(monkeypatch):
    monkeypatch.delenv("COLUMNS")
    runner = CliRunner()
    lines = runner.invoke(app, ["measure", str(FOLDERS / "built-in"), "--all"]).stdout.splitlines()
    assert 90 < max(map(len, lines)) <= 100
