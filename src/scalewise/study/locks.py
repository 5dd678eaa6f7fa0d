"""Locks that keep two commands of scalewise from starting the same run.

On some file systems ``flock`` on the study's folder does not lock out other machines, so the start
of each run is also guarded by a symbolic link in its folder.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any
from uuid import uuid4

from scalewise.errors import LaunchError, StartLocked
from scalewise.launch import processes
from scalewise.record.write import cannot_write

START_LINK = ".starting"
"""The link in a run's folder that exists while the run is being started."""
START_SECONDS = 10.0
"""Seconds to wait for a run that another process is starting."""
STALE_SECONDS = 600.0
"""Age at which a link from another machine is stale: we cannot see whether its owner lives."""


@contextmanager
def study_lock(folder: Path) -> Iterator[None]:
    """Keep a second ``scalewise run`` out of this folder while one is active."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise cannot_write(folder, error) from error
    with lock:
        # ``study_is_locked`` of another command holds the lock for a moment: try more than once.
        deadline = time.monotonic() + 0.2
        while not _try_lock(lock, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise LaunchError(
                    f"another scalewise is running this study in {folder}",
                    hint="wait for it, or end it with Ctrl-C",
                )
            time.sleep(0.02)
        yield


def study_is_locked(folder: Path) -> bool:
    """Return whether a ``scalewise run`` is active in this folder, as far as this machine sees."""
    try:
        with (folder / ".lock").open("rb") as lock:
            return not _try_lock(lock, fcntl.LOCK_SH)
    except OSError:
        return False  # No study was run here, or its lock cannot be read.


def _try_lock(file: IO[Any], kind: int) -> bool:
    """Return False if another process has locked the file, else lock it until it is closed."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # A file system without locks: the start locks still keep runs apart.
    return True


@contextmanager
def start_locks(homes: Sequence[Path], *, wait: float = 0.0) -> Iterator[dict[Path, StartLocked]]:
    """Lock the start of the runs in these folders; yield those that others have locked.

    Wait for all of them together up to ``wait`` seconds.
    """
    deadline = time.monotonic() + wait
    refused = {}
    with ExitStack() as locks:
        for home in homes:
            try:
                locks.enter_context(start_lock(home, wait=deadline - time.monotonic()))
            except StartLocked as busy:
                refused[home] = busy
        yield refused


@contextmanager
def start_lock(home: Path, *, wait: float = 0.0) -> Iterator[None]:
    """Lock the start of the run in this folder; wait up to ``wait`` seconds, then refuse.

    The lock also refreshes NFS's cache of the folder: lock before you read a run's files.
    """
    path = home / START_LINK
    deadline = time.monotonic() + wait
    # The link points to this text instead of a file: it identifies the process and this lock.
    values = {"host": os.uname().nodename, "machine": processes.machine_id(), "token": uuid4().hex}
    owner = json.dumps({**values, **processes.identity(os.getpid())})
    try:
        home.mkdir(parents=True, exist_ok=True)
        while not _create(path, owner) and not (
            _remove_stale(path, owner) and _create(path, owner)
        ):
            if time.monotonic() > deadline:
                host = ""
                with suppress(ValueError, KeyError, TypeError):
                    host = f" on {json.loads(_read(path))['host']}"
                raise StartLocked(
                    f"another scalewise{host} is starting the run in {home}",
                    hint=f"wait for it, then try again; if there is none, delete {path}",
                )
            time.sleep(0.05)
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        yield
    finally:
        if _read(path) == owner:
            path.unlink(missing_ok=True)


def _create(path: Path, owner: str) -> bool:
    """Create the link, which is atomic on NFS too; return False if it exists."""
    try:
        path.symlink_to(owner)
    except FileExistsError:
        return False
    return True


def _read(path: Path) -> str:
    """Return the owner that a link names; empty if there is no link."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _remove_stale(path: Path, new_owner: str) -> bool:
    """Remove a link whose owner has ended; return whether there is no link any more.

    Several processes may try it. Only the one that creates a second link, named by a hash of the
    stale owner, may remove the first. If its creator has ended too, a third link decides.
    """
    owner = stale_owner = _read(path)
    link = path
    while owner:
        if not _is_stale(link, owner):
            return False
        owner_hash = blake2b(owner.encode(), digest_size=8).hexdigest()
        link = path.with_name(f"{path.name}.after-{owner_hash}")
        if _create(link, new_owner):
            if _read(path) == stale_owner:  # Else it has a new, living owner by now.
                path.unlink(missing_ok=True)
            link.unlink(missing_ok=True)
            return True
        owner = _read(link)
    return not os.path.lexists(path)


def _age(path: Path) -> float:
    """Return how many seconds before now a link was made, by the clock of its file system."""
    written = path.lstat().st_mtime
    with NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}.now-") as file:
        return os.stat(file.name).st_mtime - written


def _is_stale(path: Path, owner: str) -> bool:
    """Return whether a link's creator has ended; on another machine, whether the link is old."""
    try:
        values = json.loads(owner)
        if values["machine"] == processes.machine_id():
            return not processes.alive(values["pid"], values["created"])
        return _age(path) > STALE_SECONDS
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return True  # The link was removed meanwhile, or scalewise did not write it.
