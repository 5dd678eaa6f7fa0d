"""Locks that keep two calls of scalewise from starting the same run.

A lock on the study's folder (``flock``) lasts as long as a call is at work. It does not reach
other machines on every file system, so the start of each run is also guarded by a symbolic link
in its folder, which only one process can create and whose target names that process.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from pathlib import Path
from uuid import uuid4

from scalewise.errors import LaunchError, StartLocked
from scalewise.launch import processes
from scalewise.record.write import cannot_write

START_LINK = ".starting"
"""The link in a run's folder that exists while the run is being started."""
STALE_SECONDS = 600.0
"""Age at which the link of a process on another machine counts as left behind."""


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
def start_locks(homes: Sequence[Path], *, wait: float = 0.0) -> Iterator[None]:
    """Keep others from starting the runs in these folders meanwhile; refuse if another does.

    ``wait`` so many seconds for the other to be done. Creating the link also makes a network file
    system show the folder as it is now.
    """
    with ExitStack() as locks:
        for home in homes:
            locks.enter_context(_start_lock(home, time.monotonic() + wait))
        yield


@contextmanager
def _start_lock(home: Path, deadline: float) -> Iterator[None]:
    path, owner = home / START_LINK, _owner()
    try:
        home.mkdir(parents=True, exist_ok=True)
        while not _create(path, owner) and not (
            _remove_stale(path, owner) and _create(path, owner)
        ):
            if time.monotonic() > deadline:
                raise StartLocked(
                    f"another scalewise{_host_of(path)} is starting the run in {home}",
                    hint=f"wait for it, then try again; if there is none, delete {path}",
                )
            time.sleep(0.05)
    except OSError as why:
        raise cannot_write(path, why) from why
    try:
        yield
    finally:
        if _read(path) == owner:
            path.unlink(missing_ok=True)


def _owner() -> str:
    """Return what tells this process from all others."""
    values = {"host": os.uname().nodename, "machine": processes.machine_id(), "token": uuid4().hex}
    return json.dumps({**values, **processes.identity(os.getpid())})


def _create(path: Path, owner: str) -> bool:
    """Create the link; say whether it was not there.

    Of several processes that create a link one succeeds, on every file system, NFS included,
    and it is never there without its content. Nothing follows it.
    """
    try:
        path.symlink_to(owner)
    except FileExistsError:
        return False
    return True


def _read(path: Path) -> str:
    """Return the owner that a link names; nothing where there is none."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _remove_stale(path: Path, me: str) -> bool:
    """Remove a link that was left behind; say whether it is gone.

    Of several processes that find it so, only the one that creates a second link, named after
    the owner that is gone, removes the first: what it removes cannot be anybody else's by then.
    """
    owner = left = _read(path)
    link = path
    while owner:
        if not _is_stale(link, owner):
            return False
        link = path.with_name(f"{path.name}.after-{_token(owner)}")
        if _create(link, me):
            if _read(path) == left:
                path.unlink(missing_ok=True)
            link.unlink(missing_ok=True)
            return True
        owner = _read(link)
    return not os.path.lexists(path)


def _token(owner: str) -> str:
    """Return a name for an owner that no other has."""
    return blake2b(owner.encode(), digest_size=8).hexdigest()


def _is_stale(path: Path, owner: str) -> bool:
    """Say whether the process that created a link is gone, or must be."""
    try:
        values = json.loads(owner)
        if values["machine"] == processes.machine_id():
            return not processes.alive(values["pid"], values["created"])
        return time.time() - path.lstat().st_mtime > STALE_SECONDS
    except FileNotFoundError:
        return True
    except (ValueError, KeyError, TypeError):
        return True  # Not of scalewise.


def _host_of(path: Path) -> str:
    """Return where the owner of a lock is, in words."""
    try:
        return f" on {json.loads(_read(path))['host']}"
    except (ValueError, KeyError, TypeError):
        return ""
