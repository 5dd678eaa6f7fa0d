"""A real Slurm on this machine: a login node, a controller, and nodes that are namespaces.

Every node has its own network, host name and shared memory, and hangs on a bridge; the
login node is this machine with a few files of its own in /etc. All that belongs to a
cluster lives in one of its namespaces: whoever is found in there at the end is ended.
Needs root and Debian's packages; see the Makefile.
"""

import grp
import itertools
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

USER = "learner"
GPUS = 4
SMALL = 4
"""MiB of the disk that is easily full."""
PATIENCE = 60.0
"""Seconds that a part of the cluster may take to come up or to go."""
PORT = 6818
"""Where a node's slurmd listens."""
LINK = ("burst", "256kb", "latency", "50ms")
"""Of a shaped link: a larger burst would let small messages pass at full speed."""

ENTER = """
set -e
folder=$1; shift
for name in hosts passwd group slurm; do mount --bind "$folder/etc/$name" "/etc/$name"; done
"""
ENTER_LOGIN = f'{ENTER} exec "$@"'
ENTER_NODE = f"""{ENTER}
hostname "$1"; shift
mount -t tmpfs tmpfs /dev/shm
exec "$@"
"""

SETTINGS = """\
ClusterName=box
SlurmctldHost={host}({address})
SlurmctldPort={port}
SlurmdPort={node_port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=10
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
SlurmdParameters=config_overrides
EnforcePartLimits=ALL
ReturnToService=2
JobRequeue=1
MinJobAge={age}
KillWait=5
SlurmdTimeout=10
MessageTimeout=5
SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=10000,bf_interval=1
MailProg=/bin/true
JobAcctGatherType=jobacct_gather/linux
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/jobs.txt
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/%n.log
"""
NODE = (
    "NodeName={name} NodeAddr={address} CPUs=8 Sockets=1 CoresPerSocket=8 ThreadsPerCore=1 "
    "RealMemory=20000 Gres=gpu:{gpus} State=UNKNOWN\n"
)
PARTITION = "PartitionName=debug Nodes=ALL Default=YES DefaultTime=10 MaxTime=60 State=UP\n"
ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort={port}
AccountingStoragePass={folder}/munge.socket
AccountingStorageTRES=gres/gpu
"""
DATABASE = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
DbdHost=localhost
DbdPort={port}
SlurmUser=root
PidFile={folder}/run/slurmdbd.pid
LogFile={folder}/log/slurmdbd.log
StorageType=accounting_storage/mysql
StorageUser=root
"""


class Cluster:
    """Some nodes under Slurm, for as long as a ``with`` lasts.

    ``folder`` is the file system that all nodes share: an ordinary user must be able
    to enter it. ``rate`` shapes every link, as in ``1gbit``; the controller forgets a job
    ``age`` seconds after its end.
    """

    def __init__(
        self,
        folder: Path,
        nodes: int = 3,
        rate: str | None = None,
        accounting: bool = False,
        age: int = 3600,
    ) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.small = folder / "small"
        """A disk of its own, easily full; all nodes see it."""
        self._age = age
        self.conf = folder / "etc" / "slurm" / "slurm.conf"
        self._rate = rate
        self._accounting = accounting
        self._bridge, self._subnet = _free_name(), _free_subnet()
        self.names = [f"{self._bridge}n{number}" for number in range(1, nodes + 1)]
        self.addresses = {
            name: f"{self._subnet}.{number}" for number, name in enumerate(self.names, 1)
        }
        self.uid = _free_id()
        self.env = {
            "HOME": str(self.home),
            "USER": USER,
            "LOGNAME": USER,
            "SHELL": "/bin/bash",
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "SLURM_CONF": str(self.conf),
        }
        self.spaces: set[tuple[int, int]] = set()
        """The namespaces: who is in one of them is part of this cluster."""
        self._started: list[subprocess.Popen[Any]] = []
        self._login: subprocess.Popen[Any] | None = None
        self._controller: subprocess.Popen[Any] | None = None
        self._guards: list[subprocess.Popen[Any]] = []

    def __enter__(self) -> "Cluster":
        try:
            self._make_folders()
            self._make_network()
            self._write_settings()
            self._start_login()
            if self._accounting:
                self._start_accounting()
            self.start_controller()
            # The controller shuts it; but `sacct -c` opens it to write, for any user.
            (self.folder / "jobs.txt").chmod(0o666)
            made = [self._start_slurmd(name) for name in self.names]
            self._until(lambda: self._usable(self.names), "the nodes to register", *made)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def end_with_this_process(self) -> None:
        """Let another process remove cluster and folder if this one is killed; call it first."""
        argv = [sys.executable, __file__, str(self.folder), self._bridge, *self.names]
        # It reads until all ends of this pipe are shut, which no other process inherits.
        self._guards.append(
            subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
            )
        )

    def run(
        self,
        *argv: str | Path,
        timeout: float = 60.0,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        uid: int | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Carry out a command as an ordinary user on the login node; keep its output.

        ``uid`` is another user than the cluster's own.
        """
        return subprocess.run(
            self._as_user(argv, cwd, uid), env=self.env | dict(env or {}), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip

    def start(
        self,
        *argv: str | Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        **how: Any,
    ) -> subprocess.Popen[Any]:
        """Start a command as an ordinary user on the login node; ``how`` goes to Popen."""
        how = {"stdin": subprocess.DEVNULL, "env": self.env | dict(env or {}), **how}
        self._started.append(subprocess.Popen(self._as_user(argv, cwd), **how))
        return self._started[-1]

    def root(self, *argv: str | Path) -> subprocess.CompletedProcess[str]:
        """Carry out a command as root on the login node; it must succeed."""
        return _must(*self._at_login(), *argv, env={**os.environ, "SLURM_CONF": str(self.conf)})

    def place(self, name: str) -> Path:
        """Return a new folder of the user, in his home."""
        folder = self.home / name
        folder.mkdir()
        os.chown(folder, self.uid, self.uid)
        return folder

    def clear(self) -> list[int]:
        """End all jobs; return those processes of the user that outlived them, ended as well."""
        self.root("scancel", "--user", USER)
        self._until(lambda: not self.root("squeue", "--noheader").stdout, "the jobs to end")
        deadline = time.monotonic() + 3
        while (left := self.of_user()) and time.monotonic() < deadline:
            time.sleep(0.05)
        _kill_all(self.of_user)
        return left

    def kill_node(self, name: str) -> None:
        """End all that runs on a node at once, as when its power fails."""
        space = _namespace(f"/run/netns/{name}")
        _kill_all(lambda: inside({space}))

    def kill_slurmd(self, name: str) -> None:
        """End a node's slurmd alone: jobs go on without it."""
        space, served = _namespace(f"/run/netns/{name}"), (self.folder / "run" / f"{name}.pid")
        assert _namespace(f"/proc/{served.read_text().strip()}/ns/net") == space
        os.kill(int(served.read_text()), signal.SIGKILL)

    def start_node(self, name: str) -> None:
        """Bring a node back, and wait until Slurm would use it again."""
        made = self._start_slurmd(name)
        self._until(lambda: self._usable([name]), f"{name} to register again", made)

    def signal_controller(self, number: int) -> None:
        """Send the controller a signal: it may stand still, go on, or end."""
        assert self._controller is not None
        self._controller.send_signal(number)

    def start_controller(self) -> None:
        """Start the controller, again after its end: it remembers its jobs."""
        if self._controller is not None:
            self._controller.wait(PATIENCE)
        made = self._controller = self._daemon("slurmctld", *self._at_login(), "slurmctld", "-D")
        self._until(lambda: self._answers("scontrol", "ping"), "the controller to answer", made)

    def usable(self) -> bool:
        """Return whether the controller answers and every node would take a job."""
        try:
            return self._usable(self.names)
        except (RuntimeError, subprocess.TimeoutExpired):
            return False

    def listens(self, name: str) -> bool:
        """Return whether a node's slurmd takes a call."""
        try:
            with socket.create_connection((self.addresses[name], PORT), timeout=0.5):
                return True
        except OSError:
            return False

    def cut(self, name: str) -> None:
        """Take a node off the network."""
        _must("ip", "link", "set", name, "down")

    def mend(self, name: str) -> None:
        """Put a node back onto the network; wait until it can be reached, for at most 10 s."""
        _must("ip", "link", "set", name, "up")
        ends = time.monotonic() + 10
        while not self.listens(name) and time.monotonic() < ends:
            time.sleep(0.1)

    def shape(self, rate: str | None, names: Sequence[str] = ()) -> None:
        """Hold links at a rate as in ``1gbit``, both ways; none is as fast as it goes."""
        for name in names or self.names:
            for end in (["tc", "qdisc"], ["tc", "-n", name, "qdisc"]):
                device = ["dev", "eth0" if "-n" in end else name, "root"]
                if rate:
                    _must(*end, "replace", *device, "tbf", "rate", rate, *LINK)
                else:
                    subprocess.run([*end, "del", *device], stderr=subprocess.DEVNULL, check=False)

    def _make_folders(self) -> None:
        shut = [path for path in (self.folder, *self.folder.parents) if not path.stat().st_mode & 1]
        if shut:
            raise ValueError(f"an ordinary user cannot enter {shut[0]}")
        for name in ("etc/slurm", "log", "run", "state", "dev", "home", "small"):
            (self.folder / name).mkdir(parents=True)
        disk = f"size={SMALL}m,uid={self.uid}"
        _must("mount", "-t", "tmpfs", "-o", disk, "tmpfs", self.small)
        for name in self.names:
            (self.folder / "spool" / name).mkdir(parents=True)
        for number in range(GPUS):
            os.mknod(self.folder / "dev" / f"gpu{number}", 0o020666, os.makedev(1, 3))
        os.chown(self.home, self.uid, self.uid)

    def _make_network(self) -> None:
        _must("ip", "link", "add", self._bridge, "type", "bridge")
        _must("ip", "addr", "add", f"{self._subnet}.254/24", "dev", self._bridge)
        _must("ip", "link", "set", self._bridge, "up")
        for name, address in self.addresses.items():
            _must("ip", "netns", "add", name)
            self.spaces.add(_namespace(f"/run/netns/{name}"))
            _must("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
            _must("ip", "link", "set", name, "master", self._bridge, "up")
            _must("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _must("ip", "-n", name, "link", "set", device, "up")
        self.shape(self._rate)

    def _write_settings(self) -> None:
        etc = self.folder / "etc"
        host = socket.gethostname().partition(".")[0]
        hosts = {"localhost": "127.0.0.1", host: f"{self._subnet}.254", **self.addresses}
        lines = [f"{address} {name}\n" for name, address in hosts.items()]
        (etc / "hosts").write_text("".join(lines))
        for name, line in {
            "passwd": f"{USER}:x:{self.uid}:{self.uid}::{self.home}:/bin/bash\n",
            "group": f"{USER}:x:{self.uid}:\n",
        }.items():
            (etc / name).write_text(Path("/etc", name).read_text() + line)
        nodes = [
            NODE.format(name=name, address=address, gpus=GPUS)
            for name, address in self.addresses.items()
        ]
        address = f"{self._subnet}.254"
        known = {"folder": self.folder, "host": host, "address": address, "age": self._age}
        text = (
            SETTINGS.format(port=_free_port(), node_port=PORT, **known) + "".join(nodes) + PARTITION
        )
        if self._accounting:
            port = _free_port()
            text += ACCOUNTING.format(port=port, **known)
            self._write_secret(etc / "slurm" / "slurmdbd.conf", DATABASE.format(port=port, **known))
        self.conf.write_text(text)
        devices = f"Name=gpu File={self.folder}/dev/gpu[0-{GPUS - 1}]\n"
        (etc / "slurm" / "gres.conf").write_text(devices)
        # Each node's own: over a folder that nodes share, PMIx meets its neighbour's socket.
        (etc / "slurm" / "mpi.conf").write_text("PMIxCliTmpDirBase=/dev/shm\n")

    def _write_secret(self, path: Path, content: str | bytes) -> None:
        path.touch(mode=0o600)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    def _start_login(self) -> None:
        """Start munge, which holds the namespace that the login node lives in."""
        self._write_secret(self.folder / "munge.key", os.urandom(128))
        paths = [
            f"--{kind}={self.folder}/{name}"
            for kind, name in {
                "socket": "munge.socket",
                "key-file": "munge.key",
                "seed-file": "munge.seed",
                "pid-file": "run/munged.pid",
            }.items()
        ]
        enter = ["unshare", "--mount", "--", "sh", "-c", ENTER_LOGIN, "sh", str(self.folder)]
        self._login = self._daemon("munged", *enter, "munged", "--foreground", *paths)
        self._until((self.folder / "munge.socket").exists, "munge to listen", self._login)
        self.spaces.add(_namespace(f"/proc/{self._login.pid}/ns/mnt"))

    def _start_accounting(self) -> None:
        data = self.folder / "database"
        listen = self.folder / "database.socket"
        _must("mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}")
        words = ["--no-defaults", "--user=root", f"--datadir={data}", f"--socket={listen}"]
        base = self._daemon("mariadbd", *self._at_login(), "mariadbd", *words, "--skip-networking")
        self._until(listen.exists, "the database to listen", base)
        where = ["env", f"MYSQL_UNIX_PORT={listen}"]
        made = self._daemon("slurmdbd", *self._at_login(), *where, "slurmdbd", "-D")
        asked = ("sacctmgr", "--noheader", "list", "cluster")
        self._until(lambda: self._answers(*asked), "the accounting to answer", made)

    def _start_slurmd(self, name: str) -> subprocess.Popen[Any]:
        enter = ["nsenter", f"--net=/run/netns/{name}", "unshare", "--uts", "--mount", "--"]
        argv = ["sh", "-c", ENTER_NODE, "sh", str(self.folder), name, "slurmd", "-D", "-N", name]
        return self._daemon(name, *enter, *argv)

    def _daemon(self, name: str, *argv: str) -> subprocess.Popen[Any]:
        env = {"PATH": os.environ["PATH"], "SLURM_CONF": str(self.conf)}
        with (self.folder / "log" / f"{name}.out").open("a") as log:
            made = subprocess.Popen(
                argv, env=env, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self._started.append(made)
        return made

    def _at_login(self) -> list[str]:
        assert self._login is not None
        return ["nsenter", f"--mount=/proc/{self._login.pid}/ns/mnt", "--"]

    def _as_user(
        self, argv: Iterable[str | Path], cwd: Path | None, uid: int | None = None
    ) -> list[str]:
        uid = uid or self.uid
        user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
        where = ["env", f"--chdir={cwd or self.home}"]
        return [*self._at_login(), *user, "--inh-caps=-all", *where, *map(str, argv)]

    def _answers(self, *argv: str) -> bool:
        try:
            self.root(*argv)
        except RuntimeError:
            return False
        return True

    def _usable(self, names: list[str]) -> bool:
        shown = self.root("sinfo", "--noheader", "--Node", "--format=%T", "-n", ",".join(names))
        states = shown.stdout.split()
        good = len(states) == len(names) and set(states) <= {"idle", "mixed", "allocated"}
        return good and all(map(self.listens, names))

    def of_user(self) -> list[int]:
        """Return the processes of the user, of which another cluster may have one alike."""
        found = []
        for pid in inside(self.spaces):
            with suppress(OSError):
                if os.stat(f"/proc/{pid}").st_uid == self.uid:
                    found.append(pid)
        return found

    def _until(self, ready: Callable[[], bool], what: str, *needed: subprocess.Popen[Any]) -> None:
        """Wait until it is ready; not for ever, and not for a process that has ended."""
        began = time.monotonic()
        while not ready():
            ended = any(each.poll() is not None for each in needed)
            if ended or time.monotonic() > began + PATIENCE:
                spent = time.monotonic() - began
                raise RuntimeError(f"waited {spent:.0f} s for {what}\n{self._logs()}")
            time.sleep(0.05)

    def _logs(self) -> str:
        tails = []
        for path in sorted((self.folder / "log").iterdir()):
            lines = path.read_text(errors="replace").splitlines()[-15:]
            tails.append("\n".join([f"--- {path.name}", *lines]))
        return "\n".join(tails)

    def _end(self) -> None:
        for each in self._started:
            if each.poll() is None:
                each.kill()
        _remove(self.folder, self.names, self._bridge, self.spaces)
        for each in self._guards:
            each.communicate()
        for each in self._started:
            each.wait(PATIENCE)


def _remove(folder: Path, names: Sequence[str], bridge: str, spaces: set[tuple[int, int]]) -> None:
    """End all that lives in a cluster's namespaces, then remove disk and network."""
    try:
        _kill_all(lambda: inside(spaces))
    finally:
        subprocess.run(["umount", folder / "small"], stderr=subprocess.DEVNULL, check=False)
        words = [["netns", "del", name] for name in names]
        words += [["link", "del", name] for name in (*names, bridge)]
        for argv in words:
            subprocess.run(["ip", *argv], stderr=subprocess.DEVNULL, check=False)


@contextmanager
def open_folder() -> Iterator[Path]:
    """Make a folder that all users can enter, as those that pytest makes are not."""
    with tempfile.TemporaryDirectory(prefix="scalewise-cluster-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def _must(
    *argv: str | Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Carry out a command; raise with what it said if it fails."""
    done = subprocess.run(
        argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, argv))}: {done.stdout}{done.stderr}")
    return done


def _namespace(path: str) -> tuple[int, int]:
    """Return what only this namespace has."""
    found = os.stat(path)
    return found.st_dev, found.st_ino


def inside(spaces: set[tuple[int, int]]) -> list[int]:
    """Return the processes in any of these networks or mounts, which must not be our own."""
    ours = {_namespace(f"/proc/self/ns/{kind}") for kind in ("net", "mnt")}
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if {_namespace(f"/proc/{pid}/ns/{kind}") for kind in ("net", "mnt")} & (spaces - ours):
                found.append(int(pid))
    return found


def _kill_all(found: Callable[[], list[int]]) -> None:
    """Kill processes until none is found."""
    deadline = time.monotonic() + PATIENCE
    while living := found():
        if time.monotonic() > deadline:
            raise RuntimeError(f"still alive: {living}")
        for pid in living:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


NUMBERS = itertools.count()
SUBNETS = itertools.count(os.getpid())


def _free_name() -> str:
    """Return a name for a bridge; with a node's number it is still short enough for a link."""
    taken = os.listdir("/sys/class/net")
    names = (f"c{os.getpid()}x{number}" for number in NUMBERS)
    return next(name for name in names if name not in taken)


def _free_subnet() -> str:
    """Return the first three numbers of a private network that nobody here knows a way to."""
    routes = json.loads(_must("ip", "-json", "-4", "route", "show", "table", "all").stdout)
    taken = {str(route.get("dst", "")).rpartition(".")[0] for route in routes}
    subnets = (f"10.{number // 256 % 256}.{number % 256}" for number in SUBNETS)
    return next(subnet for subnet in subnets if subnet not in taken)


def _free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("", 0))
        port: int = asked.getsockname()[1]
        return port


def _free_id() -> int:
    """Return a number that no user and no group has."""
    taken = {each.pw_uid for each in pwd.getpwall()} | {each.gr_gid for each in grp.getgrall()}
    return next(number for number in itertools.count(61000) if number not in taken)


def _remove_when_left(folder: Path, bridge: str, names: Sequence[str]) -> None:
    """Wait until the process that made a cluster has ended; remove what it left."""
    sys.stdin.read()
    setting, spaces = f"SLURM_CONF={folder}/".encode(), set()
    for name in names:
        with suppress(OSError):
            spaces.add(_namespace(f"/run/netns/{name}"))
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if setting in Path("/proc", pid, "environ").read_bytes():
                spaces |= {_namespace(f"/proc/{pid}/ns/{kind}") for kind in ("net", "mnt")}
    ours = {_namespace(f"/proc/self/ns/{kind}") for kind in ("net", "mnt")}
    _remove(folder, names, bridge, spaces - ours)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _remove_when_left(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
