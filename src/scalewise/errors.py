"""Every error scalewise raises, on one page.

ScalewiseError
├── SpecError        the request is wrong            -> fix the study file
├── PluginError      a named part cannot be loaded   -> install it, or fix its name
│   └── FrameworkMissing  not installed, or unusable  -> install it, or name its Python
├── LaunchError      the job could not be started    -> the launcher says why
│   ├── RunFailed    a run started and did not end   -> its cause, rank and host are named
│   ├── StartLocked  another call starts the run     -> wait for it, then run again
│   └── OutOfReach   a run goes on, not ours to end  -> act on its machine, as its user
├── RecordError      a file cannot be read, written  -> free the disk, or run it again
│   ├── NewerSchema  a later scalewise wrote it      -> upgrade scalewise
│   └── Broken       a file of a data set is broken  -> its path is named
└── NotEnoughData    the question needs more runs    -> measure more points
"""


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
    """A run was started and did not end well; ``words`` are what its program said of it."""

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
