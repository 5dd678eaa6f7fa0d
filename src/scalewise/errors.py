"""Every error scalewise raises, on one page.

ScalewiseError
├── SpecError        the request is wrong            -> fix the study file
├── PluginError      a named part cannot be loaded   -> install it, or fix its name
│   └── FrameworkMissing  not installed, or unusable  -> install it, or name its Python
├── LaunchError      the job could not be started    -> the launcher says why
│   ├── RunFailed    a run started and did not end   -> its cause, rank and host are named
│   ├── StartLocked  another call starts the run     -> wait for it, then run again
│   └── OutOfReach   a run cannot be ended from here -> act on its machine, as its user
├── RecordError      a file cannot be read, written  -> free the disk, or run it again
│   ├── NewerSchema  a later scalewise wrote it      -> upgrade scalewise
│   └── Broken       a file of a data set is broken  -> its path is named
└── NotEnoughData    the question needs more runs    -> measure more points
"""

import contextvars
import shlex

command_line = contextvars.ContextVar("command_line", default=False)
"""Whether texts name parameters as options of the command line; its verbs set this."""
OPTION_NAMES = {
    "purpose": "for",
    "per_node": "devices-per-node",
    "sweeps": "collectives",
    "inside": "link-inside",
    "between": "link-between",
}
"""Parameters whose option has another name."""


def parameter(name: str, value: object = None) -> str:
    """Return a parameter as the caller spells it, for the text of an error or a warning.

    >>> parameter("devices_per_node"), parameter("at", [16, 32])
    ('devices_per_node=', 'at=[16, 32]')
    >>> token = command_line.set(True)
    >>> parameter("devices_per_node"), parameter("at", [16, 32])
    ('--devices-per-node', '--at 16,32')
    >>> command_line.reset(token)
    """
    if isinstance(value, float):
        value = int(value) if value.is_integer() else value
    if not command_line.get():
        return f"{name}=" if value is None else f"{name}={value!r}"
    option = f"--{OPTION_NAMES.get(name, name).replace('_', '-')}"
    if value is None or value is True:
        return option
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return f"{option} {shlex.quote(text)}"


class ScalewiseError(Exception):
    """A problem the user can act on: what is wrong, then what to do about it."""

    def __init__(self, problem: str, *, hint: str = "") -> None:
        super().__init__(problem)
        self.hint = hint


class SpecError(ScalewiseError, ValueError):
    """The request is wrong."""


class PluginError(ScalewiseError, LookupError):
    """A named part cannot be found or loaded."""


class FrameworkMissing(PluginError):
    """A framework is not installed, too old or incomplete; runs of others can continue."""


class LaunchError(ScalewiseError, RuntimeError):
    """The job could not be started."""


class RunFailed(LaunchError):
    """A run was started and did not end well; ``details`` is what its program printed."""

    def __init__(self, problem: str, *, hint: str = "", details: str = "") -> None:
        super().__init__(problem, hint=hint)
        self.details = details


class StartLocked(LaunchError):
    """Another process is starting the run."""


class OutOfReach(LaunchError):
    """A running job that this user, or this machine, cannot end."""


class RecordError(ScalewiseError, OSError):
    """A file of a run cannot be read or written."""


class NewerSchema(RecordError):
    """A file was written by a later version than this one can read."""


class Broken(RecordError):
    """A file of a data set cannot be read as what it should be; ``path`` is the file."""

    def __init__(self, problem: str, *, hint: str = "", path: str = "") -> None:
        super().__init__(problem, hint=hint)
        self.path = path


class NotEnoughData(ScalewiseError, ValueError):
    """The question needs more runs than were measured."""
