"""The worker's verb ``data``: what the lab asks for, and how far it is, line by line."""

import json
import os
import signal
import sys
import time
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any

from scalewise.errors import ScalewiseError, SpecError

EVERY = 0.2
"""Seconds between two lines about how far it is."""
ASKER = "SCALEWISE_ASKER"
"""The process that wants the answer: without it nobody does."""
TIDY = 300.0
"""Seconds in which what is half-made is removed, once nobody wants it: a busy disk takes long."""


def answer(asked: dict[str, Any]) -> int:
    """Do what is asked; the last line on stdout is the answer, those before say how far it is."""
    signal.signal(signal.SIGTERM, _leave)  # So that what is half-made is removed.
    if asker := os.environ.get(ASKER):
        Thread(target=_outlive_not, args=(int(asker),), daemon=True).start()
    said = 0.0

    def tell(done: int, total: int) -> None:
        nonlocal said
        if done == total or time.monotonic() - said > EVERY:
            said = time.monotonic()
            try:
                _say({"done": done, "total": total})
            except BrokenPipeError:  # Nobody listens any more.
                _leave(signal.SIGTERM)

    try:
        _say({"answer": _done(asked, tell)})
    except ScalewiseError as problem:
        _say({"answer": {"problem": str(problem), "hint": problem.hint}})
    return 0


def _done(asked: dict[str, Any], tell: Any) -> dict[str, Any]:
    if asked["do"] == "check":
        from scalewise.frameworks.data.check_data import checked

        return checked(Path(asked["folder"]), tell)
    if asked["do"] == "make":
        from scalewise.frameworks.data.make_data import Recipe, made

        values = {key: each for key, each in asked.items() if key != "do"}
        values["to"] = Path(values["to"])
        values["source"] = Path(values["source"]) if values["source"] else None
        return made(Recipe(**values), tell)
    if asked["do"] == "bench":
        from scalewise.frameworks.torch.input.loader_bench import bench_loader

        return bench_loader(asked, tell)
    raise SpecError(f"the verb data cannot {asked['do']!r}", hint="it can make, check and bench")


def _say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def _outlive_not(asker: int) -> None:
    """End this process when the one that asked is gone, however it went."""
    while os.getppid() == asker:
        time.sleep(EVERY)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(TIDY)
    os._exit(128 + signal.SIGTERM)


def _leave(number: int, frame: FrameType | None = None) -> None:
    """End, but for what is half-made: that is removed, and nobody can disturb it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + number)
