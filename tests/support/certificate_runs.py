"""Train in certificate mode, on forked ranks: built-in workloads, and scripts under the watcher."""

import json
from pathlib import Path

from scalewise.record.close import close
from scalewise.record.read import RunRecord, read_run
from scalewise.record.write import write_json
from scalewise.spec import RunSpec
from start_ranks import start

WATCHED = """
import gc, multiprocessing.process, os, runpy, sys
gc.freeze()  # The objects of the process that was forked need not be searched.
import torch
from scalewise.watch.torch import hooks
multiprocessing.process._parent_process = None
hooks.on_import("torch", torch)
script = sys.argv[1]
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(script))
variables = runpy.run_path(script, run_name="__main__")
"""
"""What happens when a program under the watcher imports PyTorch, then the program. Its variables
are kept until the process exits, as Python keeps those of a script.
"""


def train(folder: Path, world: int, **fields) -> RunRecord:
    """Train a built-in workload on this many ranks."""
    values = {"topology": f"1x{world}", "certify": True, **fields}
    return _run(folder, RunSpec.from_dict(values), "-m", "scalewise.frameworks", "train", folder)


def watch(folder: Path, world: int, script: Path, *args: str, **fields) -> RunRecord:
    """Run a script on this many ranks, under the watcher."""
    program = (str(script), *args)
    values = {"topology": f"1x{world}", "program": program, "certify": True, **fields}
    return _run(folder, RunSpec.from_dict(values), "-c", WATCHED, *program)


def _run(folder: Path, spec: RunSpec, *words: str | Path) -> RunRecord:
    folder.mkdir(parents=True)
    write_json(folder / "spec.json", json.loads(json.dumps(spec.to_dict())))
    world = spec.topology.world
    code, error = start(world, *words, SCALEWISE_RUN=str(folder), SCALEWISE_ATTEMPT="1")
    assert code == 0, error
    cause = close(folder, attempt=1, world=world, ended=None)
    assert not cause, cause
    return read_run(folder, spec)
