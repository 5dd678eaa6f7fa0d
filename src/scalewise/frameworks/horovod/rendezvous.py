"""Horovod's rendezvous without horovodrun and ssh, for ranks that horovodrun did not start.

Ranks exchange their hosts through PyTorch's process group, rank 0 runs Horovod's server in a
thread, and each rank sets the variables that horovodrun would have set.
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

GLOO_VARIABLES = {"HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo"}
"""Without these, a Horovod that was built with MPI would use MPI."""
SIOCGIFADDR = 0x8915
"""Linux's ioctl request for the address of a network interface."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A rank's host, and its rank in the run, on the host and across hosts, in Horovod's terms."""

    hostname: str
    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    """Index of this host among the hosts that have a rank with the same local rank."""
    cross_size: int

    def variables(self) -> dict[str, str]:
        """Return the slot as Horovod's environment variables."""
        return {f"HOROVOD_{name.upper()}": str(value) for name, value in asdict(self).items()}


def assign_slots(hosts: Sequence[str]) -> list[Slot]:
    """Return the slot of each rank, from the host of each rank.

    >>> [slot.local_rank for slot in assign_slots(["a", "b", "a"])]
    [0, 0, 1]
    >>> [(slot.cross_rank, slot.cross_size) for slot in assign_slots(["a", "b", "a"])]
    [(0, 2), (1, 2), (0, 1)]
    """
    counts = Counter(hosts)
    slots = []
    for rank, host in enumerate(hosts):
        local_rank = hosts[:rank].count(host)
        peer_hosts = [peer for peer, count in counts.items() if count > local_rank]
        cross_rank, cross_size = peer_hosts.index(host), len(peer_hosts)
        slots.append(Slot(host, rank, len(hosts), local_rank, counts[host], cross_rank, cross_size))
    return slots


def rendezvous_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that horovodrun would set for this rank; all ranks must call this."""
    master = socket.gethostbyname(env["MASTER_ADDR"])
    hosts: list[tuple[str, str]] = [("", "")] * dist.get_world_size()  # Name and address.
    dist.all_gather_object(hosts, (os.uname().nodename, _address_towards(master)))
    slots = assign_slots([host for host, _ in hosts])
    slot = slots[dist.get_rank()]
    port = [0]  # A list, which the broadcast fills on the other ranks.
    if slot.rank == 0:  # Horovod's server runs in a thread until this process ends.
        from horovod.runner.http.http_server import RendezvousServer

        server = RendezvousServer()
        port = [server.start()]
        server.init(slots)
    dist.broadcast_object_list(port)
    interface = env.get("HOROVOD_GLOO_IFACE") or env.get("GLOO_SOCKET_IFNAME")
    return {
        **GLOO_VARIABLES,
        **slot.variables(),
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": master,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port[0]),
        "HOROVOD_GLOO_IFACE": interface or _interface_of(_own_address(master, hosts, slot)),
    }


def _own_address(master: str, hosts: Sequence[tuple[str, str]], slot: Slot) -> str:
    """Return the address by which other hosts reach this rank.

    On the master's host its name may resolve to loopback: there, the route to another host decides.
    """
    remote = [address for host, address in hosts if host != slot.hostname]
    if not remote:
        return "127.0.0.1"
    return _address_towards(remote[0] if slot.hostname == hosts[0][0] else master)


def _address_towards(target: str) -> str:
    """Return this host's address on the route to another host; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.connect((target, 9))  # Any port.
        return str(udp.getsockname()[0])


def _interface_of(address: str) -> str:
    packed = socket.inet_aton(address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # An interface without an address.
                reply = fcntl.ioctl(udp, SIOCGIFADDR, struct.pack("256s", name.encode()))
                if reply[20:24] == packed:  # The IPv4 address in struct ifreq.
                    return name
    raise LaunchError(
        f"no network interface of {os.uname().nodename} has the address {address}",
        hint="set GLOO_SOCKET_IFNAME in env to the interface between the nodes",
    )
