"""Work spread over processes: each piece is done by whoever is free.

The processes are started afresh and know nothing but their pieces. They end when their
pipe does, so none outlives the one that started them, however that one ends.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from scalewise.errors import LaunchError

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def spread(
    work: Callable[[Piece], Result], pieces: Sequence[Piece], processes: int
) -> Iterator[tuple[int, Result]]:
    """Yield the number of each piece and what ``work`` made of it, as they are done.

    What a piece raises is raised here. One piece, or one process, needs no other.
    """
    if min(processes, len(pieces)) < 2:
        for number, piece in enumerate(pieces):
            yield number, work(piece)
        return
    busy: dict[Connection, int] = {}
    todo = iter(range(len(pieces)))
    members = [_member(work) for _ in range(min(processes, len(pieces)))]
    whole = False
    try:
        for _, pipe in members:
            busy[pipe] = next(todo)
            pipe.send(pieces[busy[pipe]])
        while busy:
            for pipe in [each for each in wait(list(busy)) if isinstance(each, Connection)]:
                number = busy.pop(pipe)
                made = _received(pipe)
                following = next(todo, None)
                if following is not None:
                    busy[pipe] = following
                    pipe.send(pieces[following])
                yield number, made
        whole = True
    finally:
        for process, pipe in members:
            pipe.close()
            if not whole:
                process.kill()
            process.join()


def _member(work: Callable[[Any], Any]) -> tuple[Any, Connection]:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, work), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _received(pipe: Connection) -> Any:
    try:
        well, made = pipe.recv()
    except (EOFError, OSError) as gone:
        raise LaunchError(
            "a process that worked on the data was ended from outside",
            hint="most often the system ran out of memory",
        ) from gone
    if not well:
        raise made
    return made


def _serve(pipe: Connection, work: Callable[[Any], Any]) -> None:
    """Do pieces until nobody sends any."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one that started us.
    with suppress(EOFError, OSError):
        while True:
            piece = pipe.recv()
            try:
                answer = (True, work(piece))
            except Exception as problem:
                answer = (False, problem)
            pipe.send(answer)
