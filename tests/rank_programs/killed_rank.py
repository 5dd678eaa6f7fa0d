"""Play a rank of a run that is killed on the way, instead of the product's own verb.

    torchrun --nproc-per-node=2 tests/rank_programs/killed_rank.py FOLDER step:17

The last rank kills itself after a number of steps (``step:17``), in the middle of writing its
so-manieth checkpoint (``save:2``), at the end of an epoch before its validation (``edge:1``),
or never (``never:0``).
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from torch.distributed.checkpoint import FileSystemWriter

from scalewise.frameworks.__main__ import do_train
from scalewise.frameworks.torch.session import TorchSession


def die() -> None:
    """End this very process as a machine that fails would."""
    os.kill(os.getpid(), signal.SIGKILL)


def counted(original: Callable[..., Any], most: int) -> Callable[..., Any]:
    """Return a function that dies instead of its so-manieth call."""
    calls = 0

    def call(*words: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == most:
            die()
        return original(*words, **named)

    return call


def main() -> None:
    """Break what is to be broken, and train."""
    folder, (when, _, count) = sys.argv[1], sys.argv[2].partition(":")
    last = int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1
    places: dict[str, tuple[Any, str]] = {
        "step": (TorchSession, "step"),
        "edge": (TorchSession, "validate"),
        "save": (FileSystemWriter, "write_data"),
    }
    if last and when in places:
        owner, name = places[when]
        setattr(owner, name, counted(getattr(owner, name), int(count)))
    sys.exit(do_train(folder))


if __name__ == "__main__":
    main()
