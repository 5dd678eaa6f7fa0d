"""Start the ranks of a script as torchrun would, without the seconds that PyTorch takes to import.

Ranks are forks of a process that has imported it; what torchrun itself does takes as long again.
"""

import atexit
import multiprocessing
import os
import runpy
import socket
import sys
import time
from contextlib import ExitStack
from functools import cache
from multiprocessing.context import ForkServerContext
from multiprocessing.forkserver import ensure_running
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import NamedTemporaryFile
from unittest.mock import patch

IMPORTED = ["torch", "torch.distributed.fsdp", "torch.distributed.checkpoint", "torch._dynamo"]
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""Read as PyTorch is imported. More threads would be lost in a fork."""

_globals: dict[str, object] = {"__name__": "__main__"}
"""The script's variables, kept until the process exits, as Python keeps those of a script.

A DDP model that is freed earlier deletes its process group while it holds the GIL; that waits for a
thread of Gloo, which may be waiting for the GIL (PyTorch 2.13).
"""


def start(world: int, *words: str | Path, cwd: Path | None = None, **env: str) -> tuple[int, str]:
    """Run a script on this many ranks; return the first failing exit code, and its last words.

    When a rank fails, the others are ended.
    """
    with ExitStack() as stack:
        files = [
            [stack.enter_context(NamedTemporaryFile("w+")) for _ in ("stdout", "stderr")]
            for _ in range(world)
        ]
        texts = [str(word) for word in words]
        ranks = []
        for place, own in zip(_places(world), files):
            names = [file.name for file in own]
            args = (texts, cwd, {**os.environ, **env, **place}, names)
            ranks.append(_template().Process(target=_run, args=args))
        for rank in ranks:
            rank.start()
            stack.callback(rank.join)
            stack.callback(rank.kill)
        code, failed = _outcome(ranks)
        for out, _ in files:
            print(out.read(), end="")
        return code, files[failed][1].read()


def free_port() -> str:
    """Return a port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return str(free.getsockname()[1])


@cache
def _template() -> ForkServerContext:
    """Return what forks the process that has imported PyTorch, which it starts."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    with patch.dict(os.environ, ONE_THREAD):
        ensure_running()
    return context


def _run(words: list[str], cwd: Path | None, env: dict[str, str], names: list[str]) -> None:
    """Be the Python that is started with these words, as far as scripts can tell."""
    for number, name in enumerate(names, 1):
        os.dup2(os.open(name, os.O_WRONLY), number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1) for number in (1, 2))
    os.chdir(cwd or Path.cwd())
    os.environ.clear()
    os.environ.update(env)
    multiprocessing.set_start_method(None, force=True)  # What it starts begins as usual.
    first, *rest = words
    try:
        if first == "-c":
            sys.argv = ["-c", *rest[1:]]
            exec(rest[0], _globals)
        elif first == "-m":
            sys.argv = rest
            _globals.update(runpy.run_module(rest[0], run_name="__main__", alter_sys=True))
        else:
            sys.argv = words
            sys.path.insert(0, str(Path(first).absolute().parent))
            _globals.update(runpy.run_path(first, run_name="__main__"))
    finally:
        atexit._run_exitfuncs()  # Python runs none where a fork ends.


def _places(world: int) -> list[dict[str, str]]:
    """Return what tells each rank who it is and where all meet."""
    meeting = {"MASTER_ADDR": "localhost", "MASTER_PORT": free_port(), **ONE_THREAD}
    sizes = {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)}
    return [
        {**meeting, **sizes, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world)
    ]


def _outcome(ranks: list[BaseProcess]) -> tuple[int, int]:
    """Wait for all to end well, or for the first that fails; return its code and which it is."""
    while True:
        codes = [rank.exitcode for rank in ranks]
        for which, code in enumerate(codes):
            if code:
                return code, which
        if None not in codes:
            return 0, 0
        time.sleep(0.05)
