"""Watch many small programs, each in a forked child of this process, which has imported torch.

So the seconds that the import takes are spent once. The argument is a folder, which holds a folder
for each program with its ``train.py``; the child trains there as rank 0 of 1.
"""

import atexit
import gc
import os
import runpy
import signal
import sys
import traceback
from pathlib import Path
from typing import NoReturn

import torch
import torch._dynamo.eval_frame
import torch.distributed
import torch.utils.data

from scalewise.watch import inject
from scalewise.watch.torch import hooks

SECONDS = 60


def train(folder: Path) -> NoReturn:
    """Run a program as if scalewise had started it; its rank file is written at exit."""
    with (folder / "log.txt").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.chdir(folder)
    os.environ["SCALEWISE_RUN"] = str(folder)
    torch.manual_seed(0)
    sys.meta_path.insert(0, inject._Finder())
    hooks.on_import("torch", torch)
    # An optimizer imports this module; it is imported above because that takes seconds.
    hooks.on_import("torch._dynamo.eval_frame", torch._dynamo.eval_frame)
    sys.argv = ["train.py"]
    status = 0
    try:
        runpy.run_path("train.py", run_name="__main__")
    except Exception as problem:
        sys.last_value, status = problem, 1  # As the interpreter does at the end of a program.
        traceback.print_exc()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(status)  # To delete the objects of torch in each child would take a second.


def main() -> None:
    """Train in one child after the other, so that their times do not disturb each other."""
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    torch.set_num_threads(1)
    gc.freeze()
    for folder in sorted(Path(sys.argv[1]).iterdir()):
        sys.stdout.flush()
        child = os.fork()
        if not child:
            signal.alarm(SECONDS)
            train(folder.resolve())
        _, status = os.waitpid(child, 0)
        (folder / "status").write_text(str(os.waitstatus_to_exitcode(status)))


main()
