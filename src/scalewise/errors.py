"""Every error scalewise raises, on one page.

ScalewiseError
├── SpecError        a setting or argument is wrong  -> fix it, as the hint says
├── PluginError      a plugin cannot be loaded       -> install it, or fix its name
│   └── FrameworkMissing  not installed, or unusable  -> install it, or set its Python
├── LaunchError      the job could not be started    -> the launcher says why
│   ├── RunFailed    a run started and failed        -> its cause, rank and host are named
│   ├── StartLocked  another process starts the run  -> wait for it, then run again
│   └── OutOfReach   a run cannot be ended from here -> end it on its machine, as its user
├── RecordError      reading or writing a file fails -> free the disk, or run it again
│   ├── NewerSchema  a later scalewise wrote it      -> upgrade scalewise
│   ├── NotReadable  no regular file, or too large   -> put a file in its place
│   └── Broken       a file of a data set is broken  -> its path is named
├── DoubtfulData     a doubt blocks the answer       -> mend it, or insist with --despite
├── NotEnoughData    the analysis needs more runs    -> measure more points
└── ConditionShown   a condition of --fail-if holds  -> undo what made it so
"""

import contextvars
import shlex

command_line = contextvars.ContextVar("command_line", default=False)
"""Whether ``parameter`` writes options (``--at``) and not Python parameters (``at=``)."""
OPTION_NAMES = {
    "purpose": "for", "per_node": "devices-per-node", "sweeps": "collectives",
    "inside": "link-inside", "between": "link-between",
}  # fmt: skip
"""Python parameters whose command-line option has another name."""


def parameter(name: str, value: object = None) -> str:
    """Return a parameter as the user writes it, in Python or as an option, for a message.

    >>> parameter("devices_per_node"), parameter("at", [16, 32])
    ('devices_per_node=', 'at=[16, 32]')
    >>> token = command_line.set(True)
    >>> parameter("devices_per_node"), parameter("at", [16, 32])
    ('--devices-per-node', '--at 16,32')
    >>> command_line.reset(token)
    """
    if isinstance(value, float):  # Write 8.0 as 8.
        value = int(value) if value.is_integer() else value
    if not command_line.get():
        return f"{name}=" if value is None else f"{name}={value!r}"
    option = f"--{OPTION_NAMES.get(name, name).replace('_', '-')}"
    if value is None or value is True:
        return option
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return f"{option} {shlex.quote(text)}"


MAX_SHOWN = 80
"""Characters of a value that a message shows."""
MAX_MESSAGE = 1000
"""Characters of a message: a sentence with a few long paths."""


def cut(text: str, length: int = MAX_SHOWN) -> str:
    """Return at most this many characters, with an ellipsis at the end.

    >>> cut("a very long name", 8)
    'a very …'
    """
    return text if len(text) <= length else f"{text[: length - 1]}…"


def shown(value: object) -> str:
    """Return a value as a message shows it: as Python writes it, cut where it is long.

    >>> shown("8 GPUs"), shown([1, 2]), len(shown("x" * 500)), len(shown([10**9] * 500))
    ("'8 GPUs'", '[1, 2]', 82, 80)
    """
    if isinstance(value, str):
        return repr(cut(value))
    if hasattr(value, "isoformat"):  # A date of a TOML file.
        return str(value)
    try:
        return cut(repr(value))
    except (ValueError, RecursionError):  # Of thousands of digits, of thousands of levels.
        return "a number of thousands of digits" if isinstance(value, int) else "a deep table"


class ScalewiseError(Exception):
    """A problem the user can solve: the message says what is wrong, ``hint`` what to do."""

    exit_code = 1
    """The exit code of a command that ends with this error."""

    def __init__(self, problem: str, *, hint: str = "") -> None:
        super().__init__(cut(problem, MAX_MESSAGE))
        self.hint = cut(hint, MAX_MESSAGE)


class SpecError(ScalewiseError, ValueError):
    """A setting or an argument is wrong."""


class PluginError(ScalewiseError, LookupError):
    """A plugin cannot be found or loaded."""


class FrameworkMissing(PluginError):
    """A framework is not installed, too old or incomplete; runs with other frameworks can go on."""


class LaunchError(ScalewiseError, RuntimeError):
    """The job could not be started."""


class RunFailed(LaunchError):
    """A run was started and failed; ``details`` is what its program printed."""

    exit_code = 3

    def __init__(self, problem: str, *, hint: str = "", details: str = "") -> None:
        super().__init__(problem, hint=hint)
        self.details = details


class StartLocked(LaunchError):
    """Another process is starting the run."""


class OutOfReach(LaunchError):
    """A job is running that cannot be ended by this user or from this machine."""


class RecordError(ScalewiseError, OSError):
    """A file of a run cannot be read or written."""


class NewerSchema(RecordError):
    """A file was written by a later version of scalewise, in a format that this one cannot read."""


class NotReadable(RecordError):
    """A path is not a regular file, leads out of its folder, or is too large."""

    def __init__(
        self, path: object, reason: str, hint: str = "put a regular file in its place"
    ) -> None:
        super().__init__(f"cannot read {path}: {reason}", hint=hint)
        self.strerror = reason  # As of any OSError, for those who write their own message.


class Broken(RecordError):
    """A file of a data set is damaged or has the wrong format; ``path`` is the file."""

    def __init__(self, problem: str, *, hint: str = "", path: str = "") -> None:
        super().__init__(problem, hint=hint)
        self.path = path


class DoubtfulData(ScalewiseError, ValueError):
    """The measurements are wrong or not plausible, so no prediction or advice is given."""


class NotEnoughData(ScalewiseError, ValueError):
    """The analysis needs more runs than were measured."""


class ConditionShown(ScalewiseError):
    """A comparison shows what the user said must not happen."""

    exit_code = 4
