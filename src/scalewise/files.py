"""Open files that may be damaged or hostile: regular files only, and no more bytes than a limit.

A named pipe would block who opens it, a device may never end, and a link may lead to a file that
nobody meant to show.
"""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from scalewise.errors import NotReadable

MEBIBYTE = 1 << 20
JSON_LIMIT = 64 * MEBIBYTE
"""The largest JSON file that is read."""

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)

_HINTS = {
    errno.ENOENT: "check the path: `ls -ld` on it and on the folders above it",
    errno.EACCES: "`ls -ld` on it and on the folders above says who may use it",
    errno.EPERM: "`ls -ld` on it and on the folders above says who may use it",
    errno.EISDIR: "give a file, not a folder",
    errno.ENOTDIR: "a part of the path is a file: give a folder there",
    errno.EEXIST: "a file is where a folder should be: choose another path",
    errno.ENAMETOOLONG: "choose a shorter path; a name has at most 255 bytes",
    errno.ELOOP: "its links lead to each other: give the file itself",
    errno.ENOSPC: "free space on the disk, or choose another path",
    errno.EDQUOT: "free space in your quota, or choose another path",
    errno.EROFS: "choose a path on a disk that can be written",
}
"""What to do, by the number of the error."""


def open_regular(path: Path, within: Path | None = None) -> BinaryIO:
    """Open a regular file to read its bytes; refuse anything else without waiting for it.

    If ``within`` is given, a link is refused that leads to a file outside of that folder. A missing
    file and the like raise an OSError, as in ``open``.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    if within is not None and path.is_symlink():
        target = Path(os.path.realpath(path))
        if not target.is_relative_to(os.path.realpath(within)):
            reason = f"it is a link that leads out of {within}"
            raise NotReadable(path, reason, "put the file in place of the link")
        path = target
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if reason := _other_kind(path):  # A socket cannot even be opened.
            raise NotReadable(path, reason) from error
        raise
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise NotReadable(path, _kind(mode))
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_file(path: Path, limit: int = JSON_LIMIT, within: Path | None = None) -> bytes:
    """Return the bytes of a regular file; refuse a file of more than ``limit`` bytes, unread."""
    with open_regular(path, within) as file:
        size = os.fstat(file.fileno()).st_size
        # Not ``read(limit)``, which takes so much memory at once.
        content = b"" if size > limit else file.read(size + 1)
        while 0 < len(content) <= limit and (more := file.read(MEBIBYTE)):
            content += more  # It has grown meanwhile.
    if max(size, len(content)) > limit:
        raise NotReadable(
            path,
            f"it is larger than {limit // MEBIBYTE} MiB",
            "find out what wrote so much into it",
        )
    return content


def special_kind(path: Path) -> str:
    """Return that a path, or what it links to, is a device, a named pipe or a socket; else empty.

    To write a file atomically would put the file in its place: root could lose ``/dev/zero``.
    """
    reason = _other_kind(path)
    return reason if reason and not path.is_dir() else ""


def access_hint(error: OSError) -> str:
    """Return what to do about a path that cannot be read or written.

    >>> access_hint(FileNotFoundError(2, "No such file or directory"))
    'check the path: `ls -ld` on it and on the folders above it'
    """
    return getattr(error, "hint", "") or _HINTS.get(error.errno or 0, _HINTS[errno.ENOENT])


def _other_kind(path: Path) -> str:
    """Return what a path is if it is not a regular file; empty if it is one, or is missing."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return ""
    return "" if stat.S_ISREG(mode) else _kind(mode)


def _kind(mode: int) -> str:
    kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "something else")
    return f"it is {kind}, not a file"
