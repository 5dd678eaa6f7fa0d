"""Run a command that may be missing or hang, and return its output."""

import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The output of a command."""

    code: int | None
    """Its exit code; None after a timeout."""
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        """Whether the exit code was 0."""
        return self.code == 0

    @property
    def last_line(self) -> str:
        """The last line of stderr, else of stdout, else the exit code."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return lines[-1] if lines else f"exit code {self.code}"


def run_command(*argv: str, seconds: float = 4.0) -> CommandResult:
    """Run a command with a timeout; its exit code is 126 if it cannot be started."""
    try:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return CommandResult(126, "", f"{argv[0]} cannot be started: {error.strerror or error}")
    with child:
        try:
            stdout, stderr = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            # End its children too: while they have the pipes open, communicate() waits.
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            return CommandResult(None, "", f"no answer within {seconds:.0f} s")
    return CommandResult(child.returncode, stdout, stderr)
