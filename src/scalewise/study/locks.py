"""Locks that keep two calls of scalewise from starting the same run.

A lock on the study's folder (``flock``) lasts as long as a call is at work. It does not reach
other machines on every file system, so the start of each run is also guarded by a file of its
own, which only one process can create.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from scalewise.errors import LaunchError
from scalewise.launch import processes
from scalewise.record.write import cannot_write

START_FILE = ".starting"
"""The file in a run's folder that exists while the run is being started."""
STALE_SECONDS = 600.0
"""Age at which the start file of a process that we cannot see counts as left behind."""


class StartLocked(LaunchError):
    """Another process is starting the run."""


@contextmanager
def study_lock(folder: Path) -> Iterator[None]:
    """Keep a second ``run`` out of this folder while one is at work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as why:
        raise cannot_write(folder, why) from why
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as busy:
            raise LaunchError(
                f"another scalewise is running this study in {folder}",
                hint="wait for it, or end it with Ctrl-C",
            ) from busy
        except OSError:
            pass  # A file system without locks: the start locks still keep runs apart.
        yield


@contextmanager
def start_locks(homes: Sequence[Path]) -> Iterator[None]:
    """Keep others from starting the runs in these folders meanwhile; refuse if another does.

    Creating the file also makes a network file system show the folder as it is now.
    """
    with ExitStack() as held:
        for home in homes:
            held.enter_context(_start_lock(home))
        yield


@contextmanager
def _start_lock(home: Path) -> Iterator[None]:
    path = home / START_FILE
    try:
        home.mkdir(parents=True, exist_ok=True)
        if not _create(path):
            owner = _owner(path)
            if not _left_behind(path, owner):
                raise StartLocked(
                    f"another scalewise on {owner.get('host', 'another machine')} is starting "
                    f"the run in {home}",
                    hint="wait for it, then run again to follow the run",
                )
            path.unlink(missing_ok=True)
            if not _create(path):
                raise StartLocked(f"another scalewise is starting the run in {home}")
    except OSError as why:
        raise cannot_write(path, why) from why
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _create(path: Path) -> bool:
    """Create the file for this process; say whether it was not there."""
    owner = {
        "host": os.uname().nodename,
        "machine": processes.machine(),
        **processes.identity(os.getpid()),
    }
    try:
        # O_EXCL: on every file system, NFS included, one of several processes succeeds.
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return False
    with os.fdopen(file, "w") as lock:
        json.dump(owner, lock)
    return True


def _owner(path: Path) -> dict[str, Any]:
    """Return who created the file; nothing while that is being written."""
    try:
        owner = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return owner if isinstance(owner, dict) else {}


def _left_behind(path: Path, owner: dict[str, Any]) -> bool:
    """Say whether the process that created the file is gone."""
    if owner.get("machine") == processes.machine():
        return not processes.alive(owner["pid"], owner["created"])
    try:
        return time.time() - path.stat().st_mtime > STALE_SECONDS
    except FileNotFoundError:
        return True
