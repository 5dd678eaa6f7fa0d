"""How Horovod's ranks find each other where horovodrun does not tell them: srun, mpirun, plain.

PyTorch's ranks have met already. They tell each other where they are, rank 0 has Horovod's own
server in a thread, and each sets for itself what horovodrun would have set. Nobody needs ssh.
"""

import fcntl
import os
import socket
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass

import torch.distributed as dist

from scalewise.errors import LaunchError

OVER_GLOO = {"HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo"}
"""A Horovod that was built with MPI would take that."""
ADDRESS_OF = 0x8915
"""Linux's question for an interface's address."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A rank's place, in Horovod's words; all but the name of its machine are numbers."""

    hostname: str
    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    """Among those with the same number on their machines."""
    cross_size: int

    def variables(self) -> dict[str, str]:
        """Return the variables that tell it."""
        return {f"HOROVOD_{name.upper()}": str(value) for name, value in asdict(self).items()}


def slots(hosts: Sequence[str]) -> list[Slot]:
    """Return the place of each rank, from the machine that each is on.

    >>> [each.local_rank for each in slots(["a", "b", "a"])]
    [0, 0, 1]
    >>> [(each.cross_rank, each.cross_size) for each in slots(["a", "b", "a"])]
    [(0, 2), (1, 2), (0, 1)]
    """
    counts: Counter[str] = Counter()
    numbers = []
    for host in hosts:
        numbers.append(counts[host])
        counts[host] += 1
    found = []
    for rank, (host, number) in enumerate(zip(hosts, numbers)):
        across = [each for each, count in counts.items() if count > number]
        place = (number, counts[host], across.index(host), len(across))
        found.append(Slot(host, rank, len(hosts), *place))
    return found


def told(env: Mapping[str, str]) -> dict[str, str]:
    """Return what horovodrun would tell this rank; all of PyTorch's ranks ask at once."""
    master = socket.gethostbyname(env["MASTER_ADDR"])
    everyone: list[tuple[str, str]] = [("", "")] * dist.get_world_size()
    dist.all_gather_object(everyone, (os.uname().nodename, _address(master)))
    places = slots([host for host, _ in everyone])
    mine = places[dist.get_rank()]
    port = [_serve(places) if mine.rank == 0 else 0]
    dist.broadcast_object_list(port)
    chosen = env.get("HOROVOD_GLOO_IFACE") or env.get("GLOO_SOCKET_IFNAME")
    return {
        **OVER_GLOO,
        **mine.variables(),
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": master,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port[0]),
        "HOROVOD_GLOO_IFACE": chosen or _interface(_own_address(master, everyone, mine)),
    }


def _serve(places: Sequence[Slot]) -> int:
    """Have Horovod's server in this process as long as it lives; return its port."""
    from horovod.runner.http.http_server import RendezvousServer

    server = RendezvousServer()
    port: int = server.start()
    server.init(places)
    return port


def _own_address(master: str, everyone: Sequence[tuple[str, str]], mine: Slot) -> str:
    """Return the address by which the others reach this rank.

    A machine may know itself by an address that is of no use elsewhere: so rank 0 looks at the
    way to another one.
    """
    others = [address for host, address in everyone if host != mine.hostname]
    if not others:
        return "127.0.0.1"
    return _address(others[0] if mine.hostname == everyone[0][0] else master)


def _address(other: str) -> str:
    """Return this machine's own address on the way to another; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.connect((other, 9))
        return str(way.getsockname()[0])


def _interface(address: str) -> str:
    """Return the name of the network interface that has an address."""
    wanted = socket.inet_aton(address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # It has none.
                found = fcntl.ioctl(asked, ADDRESS_OF, struct.pack("256s", name.encode()))
                if found[20:24] == wanted:
                    return name
    raise LaunchError(
        f"no network interface of {os.uname().nodename} has the address {address}",
        hint="name the one between the nodes: GLOO_SOCKET_IFNAME, in env",
    )
