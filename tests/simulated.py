"""Play a fake study inside the test's own process: no process to start, same files."""

import time
from collections.abc import Iterator
from pathlib import Path

from scalewise.frameworks.__main__ import do_train
from scalewise.record.close import close
from scalewise.record.read import RunRecord, read_run
from scalewise.record.write import write_json
from scalewise.spec import RunSpec, StudySpec


def play(run: RunSpec, folder: Path) -> RunRecord:
    """Play one run and read what it left."""
    home = folder / run.id
    write_json(home / "spec.json", run.to_dict())
    assert do_train(str(home)) == 0
    assert not close(home, attempt=1, world=run.topology.world, ended=time.time())
    return read_run(home, run)


def play_all(study: StudySpec, folder: Path) -> Iterator[RunRecord]:
    """Play every run of a study."""
    for run in study.runs():
        yield play(run, folder)
