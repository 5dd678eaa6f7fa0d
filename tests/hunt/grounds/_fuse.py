"""A file system with faults: it passes a folder through /dev/fuse and fails as a file says.

    python _fuse.py MOUNT_POINT FOLDER FAULT_FILE

FAULT_FILE holds JSON: {} or {"fault": "full", …}. Faults:

    full, quota, read-only, io    writes fail with ENOSPC, EDQUOT, EROFS, EIO
    stale                         files that were open when the fault began: ESTALE, for ever
    short                         a write takes at most ``bytes``
    slow                          a write takes ``seconds``

``room`` is how many bytes full and quota still take, ``names`` which files a fault is about.
"""

import ctypes
import errno
import fnmatch
import json
import os
import stat
import struct
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

ERRORS = {
    "full": errno.ENOSPC, "quota": errno.EDQUOT, "read-only": errno.EROFS, "io": errno.EIO,
}  # fmt: skip
HEADER, MAX_WRITE = struct.Struct("<IIQQIIII"), 1 << 17
ROOT = 1
libc = ctypes.CDLL(None, use_errno=True)


def mount(point: str, device: int) -> None:
    """Mount the file system that the process behind ``device`` serves."""
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"faulty", os.fsencode(point), b"fuse", 0, options):
        raise OSError(ctypes.get_errno(), "mount")


class Server:
    """Answers the kernel's requests."""

    def __init__(self, device: int, folder: str, fault_file: str) -> None:
        self.device, self.fault_file = device, fault_file
        self.paths, self.ids = {ROOT: folder}, {folder: ROOT}
        self.files: dict[int, tuple[int, float]] = {}  # Handle: descriptor, when it was opened.
        self.handles_of: dict[int, set[int]] = {}
        self.next_id = ROOT + 1
        self.lock = threading.RLock()
        self.fault: dict = {}
        self.fault_version = 0
        self.taken = 0  # Bytes written since the fault began.

    def serve(self) -> None:
        while True:
            try:
                request = os.read(self.device, MAX_WRITE + 4096)
            except OSError as error:
                if error.errno == errno.ENODEV:  # Unmounted.
                    return
                if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                    continue
                raise
            opcode = struct.unpack_from("<I", request, 4)[0]
            if opcode == 16 and self.current_fault().get("fault") == "slow":
                threading.Thread(target=self.answer, args=(request,), daemon=True).start()
            else:
                self.answer(request)

    def current_fault(self) -> dict:
        with suppress(OSError, ValueError):
            version = os.stat(self.fault_file).st_mtime_ns
            if version != self.fault_version:
                self.fault = json.loads(Path(self.fault_file).read_text() or "{}")
                self.fault["began"], self.fault_version, self.taken = time.monotonic(), version, 0
        return self.fault

    def answer(self, request: bytes) -> None:
        _, opcode, unique, node, uid, gid, _, _ = HEADER.unpack_from(request)
        body = request[HEADER.size :]
        if opcode in (2, 36, 42):  # FORGET, INTERRUPT, BATCH_FORGET have no answer.
            return
        method = METHODS.get(opcode)
        error, data = 0, b""
        try:
            if method is None:
                raise OSError(errno.ENOSYS, "")
            self.fail(opcode, node)
            if opcode == 16:
                data = self.write(node, body)
            else:
                with self.lock:
                    data = method(self, node, body)
                if opcode in (8, 9, 35) and (uid or gid):
                    pass
        except OSError as problem:
            error = -(problem.errno or errno.EIO)
        with suppress(OSError):  # The caller may have been killed.
            os.write(self.device, struct.pack("<IiQ", 16 + len(data), error, unique) + data)

    def fail(self, opcode: int, node: int) -> None:
        """Raise if the current fault is about changing the file system in this way."""
        fault = self.current_fault()
        kind = fault.get("fault")
        if kind == "read-only" and opcode in CHANGES:
            raise OSError(errno.EROFS, "")
        if kind in ("full", "quota") and opcode in CREATES and fault.get("no_files"):
            raise OSError(ERRORS[kind], "")

    def concerns(self, fault: dict, node: int) -> bool:
        name = os.path.basename(self.paths.get(node, ""))
        return fnmatch.fnmatch(name, fault.get("names", "*"))

    def write(self, node: int, body: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", body)
        content = body[40 : 40 + size]
        descriptor, opened = self.files[handle]
        fault = self.current_fault()
        kind = fault.get("fault")
        if kind and self.concerns(fault, node):
            if kind in ("read-only", "io"):
                raise OSError(ERRORS[kind], "")
            if kind == "stale" and opened < fault["began"]:
                raise OSError(errno.ESTALE, "")
            if kind in ("full", "quota"):
                room = fault.get("room", 0) - self.taken
                if room <= 0:
                    raise OSError(ERRORS[kind], "")
                content = content[:room]
                self.taken += len(content)
            if kind == "short":
                content = content[: fault["bytes"]]
            if kind == "slow":
                time.sleep(fault["seconds"])
        return struct.pack("<II", os.pwrite(descriptor, content, offset), 0)

    def path(self, node: int, name: bytes = b"") -> str:
        try:
            path = self.paths[node]
        except KeyError:
            raise OSError(errno.ENOENT, "") from None
        return os.path.join(path, os.fsdecode(name.rstrip(b"\0"))) if name else path

    def attributes(self, status: os.stat_result, node: int) -> bytes:
        seconds = [int(status.st_atime), int(status.st_mtime), int(status.st_ctime)]
        nanoseconds = [t % 10**9 for t in (status.st_atime_ns, status.st_mtime_ns)]
        return struct.pack(
            "<QQQQQQIIIIIIIIII", node, status.st_size, status.st_blocks, *seconds, *nanoseconds,
            status.st_ctime_ns % 10**9, status.st_mode, status.st_nlink, status.st_uid,
            status.st_gid, 0, 4096, 0,
        )  # fmt: skip

    def entry(self, path: str) -> bytes:
        status = os.lstat(path)
        if path not in self.ids:
            self.ids[path], self.paths[self.next_id] = self.next_id, path
            self.next_id += 1
        node = self.ids[path]
        return struct.pack("<QQQQII", node, 0, 0, 0, 0, 0) + self.attributes(status, node)

    def forget(self, path: str) -> None:
        self.ids.pop(path, None)  # The id goes on to name an open file.

    def lookup(self, node: int, body: bytes) -> bytes:
        return self.entry(self.path(node, body))

    def getattr(self, node: int, body: bytes) -> bytes:
        path = self.path(node)
        handles = self.handles_of.get(node)
        if handles and self.ids.get(path) != node:  # The file was removed and is still open.
            status = os.fstat(self.files[next(iter(handles))][0])
        else:
            status = os.lstat(path)
        return struct.pack("<QII", 0, 0, 0) + self.attributes(status, node)

    def setattr(self, node: int, body: bytes) -> bytes:
        valid, _, _, size, _, atime, mtime = struct.unpack_from("<IIQQQQQ", body)
        atime_ns, mtime_ns, _, mode, _, uid, gid = struct.unpack_from("<IIIIIII", body, 56)
        path = self.path(node)
        if valid & 8:
            os.truncate(path, size)
        if valid & 1:
            os.chmod(path, stat.S_IMODE(mode))
        if valid & 6:
            os.chown(path, uid if valid & 2 else -1, gid if valid & 4 else -1)
        if valid & 48:
            status = os.stat(path)
            times = [status.st_atime_ns, status.st_mtime_ns]
            if valid & 16:
                times[0] = time.time_ns() if valid & 128 else atime * 10**9 + atime_ns
            if valid & 32:
                times[1] = time.time_ns() if valid & 256 else mtime * 10**9 + mtime_ns
            os.utime(path, ns=(times[0], times[1]))
        return self.getattr(node, b"")

    def readlink(self, node: int, body: bytes) -> bytes:
        return os.fsencode(os.readlink(self.path(node)))

    def symlink(self, node: int, body: bytes) -> bytes:
        name, target = body.split(b"\0")[:2]
        os.symlink(os.fsdecode(target), path := self.path(node, name))
        return self.entry(path)

    def mkdir(self, node: int, body: bytes) -> bytes:
        mode, umask = struct.unpack_from("<II", body)
        os.mkdir(path := self.path(node, body[8:]), mode & ~umask)
        return self.entry(path)

    def mknod(self, node: int, body: bytes) -> bytes:
        mode, device, umask, _ = struct.unpack_from("<IIII", body)
        os.mknod(path := self.path(node, body[16:]), mode & ~umask, device)
        return self.entry(path)

    def unlink(self, node: int, body: bytes) -> bytes:
        os.unlink(path := self.path(node, body))
        self.forget(path)
        return b""

    def rmdir(self, node: int, body: bytes) -> bytes:
        os.rmdir(path := self.path(node, body))
        self.forget(path)
        return b""

    def rename(self, node: int, body: bytes, start: int = 8) -> bytes:
        (target,) = struct.unpack_from("<Q", body)
        old_name, new_name = body[start:].split(b"\0")[:2]
        old, new = self.path(node, old_name), self.path(target, new_name)
        os.rename(old, new)
        self.forget(new)
        for path in [path for path in self.ids if path == old or path.startswith(f"{old}/")]:
            moved = self.ids.pop(path)
            self.paths[moved] = new + path[len(old) :]
            self.ids[self.paths[moved]] = moved
        return b""

    def rename2(self, node: int, body: bytes) -> bytes:
        if struct.unpack_from("<QI", body)[1]:
            raise OSError(errno.EINVAL, "")
        return self.rename(node, body, 16)

    def link(self, node: int, body: bytes) -> bytes:
        (source,) = struct.unpack_from("<Q", body)
        os.link(self.path(source), path := self.path(node, body[8:]))
        return self.entry(path)

    def handle(self, node: int, descriptor: int) -> bytes:
        self.files[descriptor] = descriptor, time.monotonic()
        self.handles_of.setdefault(node, set()).add(descriptor)
        return struct.pack("<QII", descriptor, 0, 0)

    def open(self, node: int, body: bytes) -> bytes:
        (flags,) = struct.unpack_from("<I", body)
        writes = flags & os.O_ACCMODE != os.O_RDONLY
        if writes and self.current_fault().get("fault") == "read-only":
            raise OSError(errno.EROFS, "")
        kept = (flags & ~(os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)) & ~os.O_ACCMODE
        return self.handle(node, os.open(self.path(node), kept | (2 if writes else 0)))

    def create(self, node: int, body: bytes) -> bytes:
        flags, mode, umask, _ = struct.unpack_from("<IIII", body)
        path = self.path(node, body[16:])
        kept = (flags & ~(os.O_APPEND | os.O_ACCMODE)) | os.O_CREAT | os.O_RDWR
        descriptor = os.open(path, kept, mode & ~umask)
        entry = self.entry(path)
        return entry + self.handle(self.ids[path], descriptor)

    def read(self, node: int, body: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", body)
        return os.pread(self.files[handle][0], size, offset)

    def statfs(self, node: int, body: bytes) -> bytes:
        status = os.statvfs(self.paths[ROOT])
        full = self.current_fault().get("fault") in ("full", "quota")
        free = 0 if full else status.f_bfree
        return struct.pack(
            "<QQQQQIIII24x", status.f_blocks, free, free, status.f_files, status.f_ffree,
            status.f_bsize, 255, status.f_frsize, 0,
        )  # fmt: skip

    def release(self, node: int, body: bytes) -> bytes:
        (handle,) = struct.unpack_from("<Q", body)
        descriptor, _ = self.files.pop(handle)
        self.handles_of.get(node, set()).discard(handle)
        os.close(descriptor)
        return b""

    def nothing(self, node: int, body: bytes) -> bytes:
        return b""

    def opendir(self, node: int, body: bytes) -> bytes:
        os.lstat(self.path(node))
        return struct.pack("<QII", 0, 0, 0)

    def readdir(self, node: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        entries, answer = [b".", b"..", *sorted(os.listdir(os.fsencode(self.path(node))))], b""
        for position, name in enumerate(entries[offset:], offset + 1):
            entry = struct.pack("<QQII", position, position, len(name), 0) + name
            entry += bytes(-len(entry) % 8)
            if len(answer) + len(entry) > size:
                break
            answer += entry
        return answer

    def init(self, node: int, body: bytes) -> bytes:
        atomic_o_trunc, big_writes = 1 << 3, 1 << 5
        return struct.pack(
            "<IIIIHHIIHHI28x", 7, 31, 1 << 17, atomic_o_trunc | big_writes, 12, 9, MAX_WRITE, 1,
            0, 0, 0,
        )  # fmt: skip


METHODS = {
    1: Server.lookup, 3: Server.getattr, 4: Server.setattr, 5: Server.readlink, 6: Server.symlink,
    8: Server.mknod, 9: Server.mkdir, 10: Server.unlink, 11: Server.rmdir, 12: Server.rename,
    13: Server.link, 14: Server.open, 15: Server.read, 16: Server.write, 17: Server.statfs,
    18: Server.release, 20: Server.nothing, 25: Server.nothing, 26: Server.init,
    27: Server.opendir, 28: Server.readdir, 29: Server.nothing, 30: Server.nothing,
    35: Server.create, 45: Server.rename2,
}  # fmt: skip
CREATES = {6, 8, 9, 13, 35}
CHANGES = CREATES | {4, 10, 11, 12, 45}


def main() -> None:
    point, folder, fault_file = sys.argv[1:]
    libc.prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL: end with the process that started this one.
    device = os.open("/dev/fuse", os.O_RDWR)
    mount(point, device)
    print("mounted", flush=True)
    Server(device, folder, fault_file).serve()


if __name__ == "__main__":
    main()
