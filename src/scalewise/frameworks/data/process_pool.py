"""Map a function over items in spawned processes; an idle process gets the next item.

Processes exit when their pipe is closed, so they do not outlive the parent even if it is killed.
"""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar, cast

from scalewise.errors import LaunchError

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]
"""Called with the number of samples done so far and the total."""


def map_unordered(
    function: Callable[[Item], Result], items: Sequence[Item], processes: int
) -> Iterator[tuple[int, Result]]:
    """Yield (item's index, result) in the order of completion; raise the function's exceptions."""
    if min(processes, len(items)) < 2:  # No other process is needed.
        for index, item in enumerate(items):
            yield index, function(item)
        return
    busy: dict[Connection, int] = {}  # The index of the item that each busy process works on.
    pending = iter(range(len(items)))
    workers = [_start_worker(function) for _ in range(min(processes, len(items)))]
    complete = False
    try:
        for _, pipe in workers:
            busy[pipe] = next(pending)
            pipe.send(items[busy[pipe]])
        while busy:
            for pipe in cast(list[Connection], wait(list(busy))):
                index = busy.pop(pipe)
                result = _receive(pipe)
                next_index = next(pending, None)
                if next_index is not None:
                    busy[pipe] = next_index
                    pipe.send(items[next_index])
                yield index, result
        complete = True
    finally:
        for process, pipe in workers:
            pipe.close()
            if not complete:
                process.kill()
            process.join()


def _start_worker(function: Callable[[Any], Any]) -> tuple[Any, Connection]:
    context = get_context("spawn")
    parent_end, worker_end = context.Pipe()
    process = context.Process(target=_serve, args=(worker_end, function), daemon=True)
    process.start()
    worker_end.close()
    return process, parent_end


def _receive(pipe: Connection) -> Any:
    try:
        succeeded, result = pipe.recv()
    except (EOFError, OSError) as error:
        raise LaunchError(
            "a process that worked on the data was killed",
            hint="most often the system ran out of memory",
        ) from error
    if not succeeded:
        raise result
    return result


def _serve(pipe: Connection, function: Callable[[Any], Any]) -> None:
    """Process items until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent.
    with suppress(EOFError, OSError):
        while True:
            item = pipe.recv()
            try:
                answer = (True, function(item))
            except Exception as error:
                answer = (False, error)
            pipe.send(answer)
