"""Run ``scalewise`` and small programs in processes of their own, as a user would."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

from builders import run_values

COMMAND = Path(sys.executable).parent / "scalewise"


def study_toml(topologies=("1x1", "1x2", "1x4"), name="a study", **changes):
    """Return a fake study's file; JSON's numbers, text and lists are TOML too."""
    run = run_values(**changes)
    del run["topology"]
    settings = "".join(f"{key} = {json.dumps(value)}\n" for key, value in run.items())
    return (
        f"name = {json.dumps(name)}\n[run]\n{settings}[vary]\n"
        f"topology = {json.dumps(list(topologies))}\n"
    )


def run_command(*words, cwd, **more):
    return subprocess.run(
        [COMMAND, *map(str, words)], capture_output=True, text=True, cwd=cwd, check=False, **more
    )


def modules_after(code: str) -> set[str]:
    """Return the top-level modules a fresh interpreter holds after running ``code``."""
    ask = f"{code}\nimport json, sys; print(json.dumps([*sys.modules]), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in json.loads(done.stderr.splitlines()[-1])}


def install_framework(folder: Path, body: str) -> dict[str, str]:
    """Install a framework ``odd`` that runs ``body`` before training; return the environment."""
    info = folder / "stranger-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[scalewise.frameworks]\nodd = odd:Odd\n")
    (folder / "odd.py").write_text(
        "import os, sys, time\nfrom scalewise.frameworks.fake import Fake\n"
        "class Odd(Fake):\n"
        "    def session(self, spec, rank, probe):\n" + textwrap.indent(body, " " * 8) + "\n"
        "        return super().session(spec, rank, probe)\n"
    )
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path}
