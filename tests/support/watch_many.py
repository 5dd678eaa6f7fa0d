"""Watch many small programs on one rank, in one start of Python."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from paths import RANK_PROGRAMS
from scalewise.record.write import write_json
from watch_script import Seen, seen

SECONDS = 300


def watch_programs(programs: Mapping[str, str], folder: Path) -> dict[str, Seen]:
    """Return what was seen of each program, given as its text."""
    for name, text in programs.items():
        place = folder / name
        place.mkdir(parents=True)
        (place / "train.py").write_text(text)
        write_json(place / "spec.json", {"topology": "1x1", "program": ["train.py"]})
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(RANK_PROGRAMS / "watch_many.py"), str(folder)]
    done = subprocess.run(
        command, env=env, timeout=SECONDS, check=False, capture_output=True, text=True
    )
    assert not done.returncode, done.stderr
    for name in programs:
        status, log = (folder / name / "status").read_text(), (folder / name / "log.txt")
        assert status == "0", f"{name} exited with {status}:\n{log.read_text()}"
    return {name: seen(folder / name, 0) for name in programs}
