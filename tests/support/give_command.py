"""Give a command of scalewise in this process, as a shell would; say what no command may do."""

import contextlib
import io
import os
import re
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

MAX_SECONDS = 2.0
"""Of processor time, beyond what the same command takes with its undamaged input."""
MAX_BYTES = 500 * 2**20
MAX_LINE = 1010
"""Characters of a line on stderr: a sentence with a few paths."""
NOT_FINITE = re.compile(r"(?<![\w.'\"/%-])[+-]?(nan|inf|infinity)(?![\w.'\"/])", re.IGNORECASE)
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command printed and took."""

    code: object
    out: str
    err: str
    crash: str
    """The traceback of an error that reached the user; empty if none did."""
    seconds: float
    """Of processor time, also that of processes that it started."""
    grown: int
    """Bytes by which the largest memory of this process has grown."""


def give(arguments: Sequence[str], folder: Path, config: Path | None = None) -> Answer:
    """Give a command in a folder; its user configuration is in ``config``."""
    from scalewise.cli import main

    streams = [
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=errors)
        for errors in ("strict", "backslashreplace")
    ]
    env = {"XDG_CONFIG_HOME": str(config or folder / "no-config"), "COLUMNS": "wide"}
    crash, code = "", 0
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    memory, began = _largest_memory(), _seconds()
    with (
        mock.patch.object(sys, "argv", ["scalewise", *arguments]),
        mock.patch.dict(os.environ, env),
        contextlib.redirect_stdout(streams[0]),
        contextlib.redirect_stderr(streams[1]),
        contextlib.chdir(folder),
        _warnings_as_errors(),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            crash = traceback.format_exc()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    texts = []
    for stream in streams:
        stream.flush()
        texts.append(stream.buffer.getvalue().decode("utf-8", "replace"))  # type: ignore[attr-defined]
    grown = _largest_memory() - memory
    return Answer(code, texts[0], texts[1], crash, _seconds() - began, grown)


def what_is_wrong(answer: Answer, *, base_seconds: float = 0.0) -> str | None:
    """Return what no answer may be, whatever the input was; None if it is none of that."""
    if answer.crash:
        return f"a traceback: {answer.crash[-1500:]}"
    if "Traceback (most recent" in answer.err + answer.out:
        return f"a traceback is printed: {(answer.err + answer.out)[-1500:]}"
    if answer.code not in (0, 1, 2, 3, 4):
        return f"exit code {answer.code}"
    if answer.seconds > base_seconds + MAX_SECONDS:
        return f"{answer.seconds:.1f} s of processor time, {base_seconds:.1f} s usually"
    if answer.grown > MAX_BYTES:
        return f"{answer.grown / 2**20:.0f} MB of memory"
    if control := CONTROL.search(answer.err) or CONTROL.search(answer.out):
        return f"control character {control[0]!r} is printed"
    if long := [line for line in answer.err.splitlines() if len(line) > MAX_LINE]:
        return f"a line of {len(long[0])} characters: {long[0][:200]}"
    if answer.code == 0 and (match := NOT_FINITE.search(answer.out)):
        start = max(0, match.start() - 60)
        return f"not a finite number: {answer.out[start : match.end() + 20]!r}"
    if answer.code in (1, 2):
        return _wrong_refusal(answer)
    return None


def _wrong_refusal(answer: Answer) -> str | None:
    """Return what is wrong with the error of a command that failed."""
    lines = [line for line in answer.err.splitlines() if line.strip()]
    errors = [line for line in lines if re.match("error: |Error: ", line)]
    if not errors and "\n  problem: " in answer.out:  # What ``data check`` has found.
        return None
    if not errors:
        return f"exit code {answer.code} without an error: {answer.err[-300:]!r}"
    if answer.code == 1 and not any(line.startswith(" hint: ") for line in lines):
        return f"an error without a hint: {errors[-1][:300]}"
    return None


@contextlib.contextmanager
def _warnings_as_errors() -> Iterator[None]:
    """A warning of numpy or matplotlib would be printed amid the answer."""
    with warnings.catch_warnings():
        for category in (RuntimeWarning, UserWarning, SyntaxWarning):
            warnings.simplefilter("error", category)
        yield


def _largest_memory() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
