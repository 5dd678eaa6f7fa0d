"""The worker's verb ``data``: answers a request of the parent process with JSON on stdout."""

import json
import os
import signal
import sys
import time
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any

from scalewise.errors import ScalewiseError, SpecError, shown

PROGRESS_SECONDS = 0.2
"""Time between two progress lines."""
PARENT_VARIABLE = "SCALEWISE_ASKER"
"""Environment variable with the process id of the parent."""
CLEANUP_SECONDS = 300.0
"""Time allowed for removing an unfinished data set after the parent has ended."""


def answer(request: dict[str, Any]) -> None:
    """Print progress lines, then the answer as the last line."""
    signal.signal(signal.SIGTERM, _raise_system_exit)  # Removes an unfinished data set.
    if parent := os.environ.get(PARENT_VARIABLE):
        Thread(target=_exit_with_parent, args=(int(parent),), daemon=True).start()
    last_line_at = 0.0

    def progress(done: int, total: int) -> None:
        nonlocal last_line_at
        if done == total or time.monotonic() - last_line_at > PROGRESS_SECONDS:
            last_line_at = time.monotonic()
            try:
                _print_line({"done": done, "total": total})
            except BrokenPipeError:  # The parent has closed its end.
                _raise_system_exit(signal.SIGTERM)

    try:
        _print_line({"answer": _handle(request, progress)})
    except ScalewiseError as problem:
        _print_line({"answer": {"problem": str(problem), "hint": problem.hint}})


def _handle(request: dict[str, Any], progress: Any) -> dict[str, Any]:
    if request["do"] == "check":
        from scalewise.frameworks.data.check_data import check_data_set

        return check_data_set(Path(request["folder"]), progress)
    if request["do"] == "make":
        from scalewise.frameworks.data.make_data import Recipe, make_data_set

        values = {key: value for key, value in request.items() if key != "do"}
        values["to"] = Path(values["to"])
        values["source"] = Path(values["source"]) if values["source"] else None
        return make_data_set(Recipe(**values), progress)
    if request["do"] == "bench":
        from scalewise.frameworks.torch.input.loader_bench import bench_loader

        return bench_loader(request, progress)
    raise SpecError(
        f"the verb data cannot {shown(request['do'])}", hint="it can make, check and bench"
    )


def _print_line(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def _exit_with_parent(parent: int) -> None:
    """Wait until the parent has ended for any reason, then end this process."""
    while os.getppid() == parent:
        time.sleep(PROGRESS_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(CLEANUP_SECONDS)  # Meanwhile the main thread cleans up, and normally exits.
    os._exit(128 + signal.SIGTERM)


def _raise_system_exit(signal_number: int, frame: FrameType | None = None) -> None:
    """Raise SystemExit; further SIGTERMs are ignored so that they cannot interrupt the cleanup."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + signal_number)
