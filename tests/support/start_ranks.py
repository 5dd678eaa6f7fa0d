"""Start the ranks of a script as torchrun would, without the seconds that torchrun takes."""

import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile


def start(world: int, *words: str | Path, cwd: Path | None = None, **env: str) -> tuple[int, str]:
    """Run a script on this many ranks; return the first failing exit code, and its last words.

    When a rank fails, the others are ended.
    """
    with ExitStack() as stack:
        errors = [stack.enter_context(TemporaryFile("w+")) for _ in range(world)]
        surroundings = [{**os.environ, **env, **place} for place in _places(world)]
        argv = [sys.executable, *map(str, words)]
        ranks = [
            stack.enter_context(subprocess.Popen(argv, cwd=cwd, env=each, stderr=error))
            for each, error in zip(surroundings, errors)
        ]
        stack.callback(lambda: [rank.kill() for rank in ranks])
        code, failed = _outcome(ranks)
        errors[failed].seek(0)
        return code, errors[failed].read()


def free_port() -> str:
    """Return a port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return str(free.getsockname()[1])


def _places(world: int) -> list[dict[str, str]]:
    """Return what tells each rank who it is and where all meet."""
    meeting = {"MASTER_ADDR": "localhost", "MASTER_PORT": free_port(), "OMP_NUM_THREADS": "1"}
    sizes = {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)}
    return [
        {**meeting, **sizes, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world)
    ]


def _outcome(ranks: list[subprocess.Popen]) -> tuple[int, int]:
    """Wait for all to end well, or for the first that fails; return its code and which it is."""
    while True:
        codes = [rank.poll() for rank in ranks]
        for which, code in enumerate(codes):
            if code:
                return code, which
        if None not in codes:
            return 0, 0
        time.sleep(0.05)
