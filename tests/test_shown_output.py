"""Pages show what is printed: each command that is followed by its output."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from fake_study import a_watched_folder
from paths import ROOT

PAIR = re.compile(
    r"^```sh\n(scalewise [^\n]*(?:\\\\\n[^\n]*)*)\n```\n\n```\n(.*?)^```$", re.M | re.S
)
"""A block with one command, and the block of its output."""
PAGES = {"README.md": "80", "docs/guides/how-to-read-an-answer.md": "80",
         "docs/guides/predict.md": "1000", "docs/guides/import-logs.md": "1000"}  # fmt: skip
"""Pages, and the width of their output; guides do not wrap sentences."""
MACHINE_DEPENDENT = ("runs/demo",)


def shown() -> list[object]:
    """Return every command with its output, by page."""
    return [
        pytest.param(page, command, output, id=f"{Path(page).stem}-{number}")
        for page in PAGES
        for number, (command, output) in enumerate(PAIR.findall((ROOT / page).read_text()), 1)
        if not any(name in command for name in MACHINE_DEPENDENT)
    ]


def prepare(command: str, page: str) -> list[str]:
    """Make what a command reads, in the current folder; return its words as a test can give it."""
    words = shlex.split(command.replace("\\\n", " "))[1:]
    text = (ROOT / page).read_text()
    if words[0] == "run":  # The simulated machine, with the facts that such a script leaves.
        a_watched_folder(Path("runs/train"), "same samples", name="train")
        return ["summary", "runs/train"]
    if "study.toml" in words:
        text = (ROOT / "docs/guides/slurm.md").read_text()
        Path("study.toml").write_text(re.findall(r"^```toml\n(.*?)^```$", text, re.M | re.S)[0])
    if "one-node.csv" in words:
        (table,) = re.findall(r"^```\n(devices,.*?)^```$", text, re.M | re.S)
        Path("one-node.csv").write_text(table)
    Path("studies").symlink_to(ROOT / "studies")
    return words


def test_the_pages_have_commands_with_their_output():
    pages = [case.values[0] for case in shown()]
    counts = dict(zip(PAGES, (4, 1, 3, 1), strict=True))
    assert {page: pages.count(page) for page in PAGES} == counts


@pytest.mark.parametrize(("page", "command", "output"), shown())
def test_a_page_shows_what_is_printed(
    page: str, command: str, output: str, scalewise: Callable[..., tuple[object, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("COLUMNS", PAGES[page])
    monkeypatch.setenv("XDG_CONFIG_HOME", str(Path.cwd()))
    code, out, err = scalewise(*prepare(command, page))
    assert code == 0, err
    parts = [part for part in re.split(r"^…\n", output, flags=re.M) if part]
    assert parts and [part for part in parts if part not in out] == []
