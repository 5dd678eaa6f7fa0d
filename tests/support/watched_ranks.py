"""Run a user's script under the watcher, its ranks forked from a process that has PyTorch.

``scalewise run`` does the same with new processes, each of which takes seconds to import PyTorch.
"""

import time
from pathlib import Path

from scalewise.launch import Plan, write_plan_files
from scalewise.record.close import close
from scalewise.spec import RunSpec
from start_ranks import start

WATCH = """
import multiprocessing.process, runpy, sys
from pathlib import Path
import torch
from scalewise.watch.torch import hooks
multiprocessing.process._parent_process = None
hooks.on_import("torch", torch)
sys.argv = sys.argv[1:]
sys.path.insert(0, str(Path(sys.argv[0]).absolute().parent))
variables = runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""What ``sitecustomize`` does when a program imports PyTorch, then the program."""


def run_watched(spec: RunSpec, folder: Path) -> str:
    """Run it in its folder below ``folder``; return why it failed, or an empty string."""
    home = folder / spec.id
    write_plan_files(Plan((spec,), folder, (), {}))
    assert spec.program
    launched = time.time()
    code, words = start(
        spec.topology.world, "-c", WATCH, *spec.program,
        SCALEWISE_RUN=str(home), SCALEWISE_LAUNCHED=repr(launched), SCALEWISE_ATTEMPT="1",
    )  # fmt: skip
    if code:
        return words
    return close(home, attempt=1, world=spec.topology.world, ended=time.time(), launched=launched)
