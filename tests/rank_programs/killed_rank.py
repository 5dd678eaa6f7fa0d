"""Play a rank of a run that is killed on the way, instead of the product's own verb.

    torchrun --nproc-per-node=2 tests/rank_programs/killed_rank.py FOLDER step:17

The last rank, or another (``step:17@0``), kills itself instead of its so-manieth call of one of
PLACES: for example before a step (``step:17``), in the middle of writing a checkpoint (``save:2``),
at the end of an epoch before its validation (``edge:1``). ``seconds:0.7`` kills it so long after
its session began, ``never`` not at all.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from torch.distributed.checkpoint import FileSystemWriter

from scalewise.frameworks.__main__ import do_train
from scalewise.frameworks.torch.session import TorchSession
from scalewise.record import checkpoints


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


PLACES: dict[str, tuple[Any, str]] = {
    "step": (TorchSession, "step"),
    "update": (TorchSession, "_update_weights"),
    "edge": (TorchSession, "validate"),
    "store": (TorchSession, "store"),
    "save": (FileSystemWriter, "write_data"),
    "checksum": (checkpoints, "checksum"),
    "finish": (FileSystemWriter, "finish"),
    "remove": (checkpoints, "remove_old"),
    "restore": (TorchSession, "_load_checkpoint"),
    "weights": (TorchSession, "save"),
}


def main() -> None:
    """Break what is to be broken, and train."""
    folder, (moment, _, who) = sys.argv[1], sys.argv[2].partition("@")
    when, _, count = moment.partition(":")
    victim = int(who) if who else int(os.environ["WORLD_SIZE"]) - 1
    if int(os.environ["RANK"]) == victim:
        if when in PLACES:
            owner, name = PLACES[when]
            setattr(owner, name, counted(getattr(owner, name), int(count)))
        elif when == "seconds":
            begin = TorchSession.__init__

            def timed(*words: Any) -> None:
                threading.Timer(float(count), die).start()
                begin(*words)

            TorchSession.__init__ = timed  # type: ignore[method-assign]
    sys.exit(do_train(folder))


if __name__ == "__main__":
    main()
