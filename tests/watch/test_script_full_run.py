"""A rehearsal of a script, and the full run that it stands for."""

import json

import pytest

from commands import run_command
from watched_scripts import HERE

pytestmark = [pytest.mark.scripts, pytest.mark.timeout(180)]


def measured(folder, *options):
    """Run the textbook DDP script on one rank; return what ``measure`` says of its point."""
    program = ["--", HERE / "ddp.py", "--epochs", "5"]
    done = run_command("run", "--on", "1", "-o", "study", *options, *program, cwd=folder)
    assert done.returncode == 0, done.stderr
    answer = run_command("measure", "study", "--json", cwd=folder)
    (curve,) = json.loads(answer.stdout)["curves"]
    return curve, curve["points"][0]


def test_a_rehearsal_stands_for_the_epochs_of_its_loader(tmp_path):
    for name in ("short", "whole"):
        (tmp_path / name).mkdir()
    curve, rehearsed = measured(tmp_path / "short", "--stop-after", "30", "--full-run", "5 epochs")
    assert curve["rehearsal"] and curve["full_run"]["text"] == "5 epochs"
    _, real = measured(tmp_path / "whole")
    assert rehearsed["samples"] == real["samples"] == 5 * 640
    assert rehearsed["steps"] == real["steps"]
    low, high = rehearsed["time"]["low"], rehearsed["time"]["high"]
    assert 0.5 * low < real["time"]["value"] < 2 * high  # Tests share their machine.
