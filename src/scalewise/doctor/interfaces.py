"""Where ranks can meet: interfaces, the host's own name, free ports."""

import ipaddress
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import psutil

from scalewise.doctor.finding import Finding, Remark, make_finding

INTERFACE_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
RESOLVE_SECONDS = 3.0
"""Seconds that a name may take to become an address."""


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface: whether it is up, and its addresses."""

    name: str
    up: bool
    addresses: tuple[str, ...]

    @property
    def usable(self) -> bool:
        """Whether ranks can meet on it."""
        return self.up and bool(self.addresses)

    @property
    def problem(self) -> str:
        """Why ranks cannot meet on it, or nothing."""
        return "" if self.usable else "is down" if not self.up else "has no address"

    @property
    def outward(self) -> str | None:
        """Its first address that another machine could use, of version 4."""
        found = [each for each in self.addresses if ":" not in each and not is_loopback(each)]
        return found[0] if found else None


def list_interfaces() -> list[Interface]:
    """Return the interfaces of this machine, those that lead outwards first."""
    states = psutil.net_if_stats()
    families = (socket.AF_INET, socket.AF_INET6)
    found = [
        Interface(
            name,
            up=states[name].isup if name in states else False,
            addresses=tuple(each.address for each in addresses if each.family in families),
        )
        for name, addresses in psutil.net_if_addrs().items()
    ]
    missing = [name for _, name in socket.if_nameindex() if name not in {i.name for i in found}]
    found += [
        Interface(name, states[name].isup if name in states else False, ()) for name in missing
    ]
    return sorted(found, key=lambda each: (not each.usable, not each.outward, each.name))


def is_loopback(address: str) -> bool:
    """Say whether an address leads back to the same machine."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def check_variable(variable: str, value: str, found: Sequence[Interface]) -> list[Remark]:
    """Say what is wrong with the interfaces a variable names, before anything tries them.

    Gloo takes names. NCCL takes beginnings of names, names after ``=``, and
    after ``^`` those to leave out.
    """
    usable = [each.name for each in found if each.usable]
    remedy = f"unset {variable}, or set it to one of: {', '.join(usable) or 'none is usable'}"
    nccl = variable.startswith("NCCL")
    if nccl and value.startswith("^"):
        left = [name for name in usable if not name.startswith(tuple(value[1:].split(",")))]
        return [] if left else [Remark("fault", f"{variable}={value} leaves no interface", remedy)]
    exact = not nccl or value.startswith("=")
    remarks = []
    for name in value.removeprefix("=").split(",") if nccl else value.split(","):
        those = [each for each in found if each.name == name]
        if not exact:
            those = [each for each in found if each.name.startswith(name)]
        if not those:
            says = f"{variable}={value}: there is no interface {name!r}"
            remarks.append(Remark("fault", says, remedy))
        elif not any(each.usable for each in those):
            says = f"{variable}={value}: {those[0].name} {those[0].problem}"
            remarks.append(Remark("fault", says, remedy))
    return remarks


def check_interfaces(env: Mapping[str, str], found: Sequence[Interface]) -> Finding:
    """Say which interfaces there are, and whether the one that was set is among them."""
    remarks = [
        remark
        for variable in INTERFACE_VARIABLES
        if env.get(variable)
        for remark in check_variable(variable, env[variable], found)
    ]
    usable = [each for each in found if each.usable]
    told = [f"{each.name} {each.outward or each.addresses[0]}" for each in usable]
    if not usable:
        hint = "bring one up: ip link set lo up"
        remarks.append(Remark("fault", "ranks have nowhere to meet", hint))
    evidence = {each.name: {**asdict(each), "usable": each.usable} for each in found}
    chosen_ones = {variable: env.get(variable) for variable in INTERFACE_VARIABLES}
    says = ", ".join(told) or "none is up with an address"
    return make_finding("interfaces", says, remarks, {"interfaces": evidence, **chosen_ones})


def check_host(name: str, found: Sequence[Interface]) -> Finding:
    """Say what the host's own name leads to, and whether a port can be had there."""
    addresses = resolve_host(name)
    outward = next((each.outward for each in found if each.usable and each.outward), None)
    remarks = []
    if addresses is None:
        hint = f"wait for the name server, or add a line '{outward or '127.0.0.1'} {name}' to"
        remarks.append(Remark("fault", "its name gets no answer", f"{hint} /etc/hosts"))
    elif not addresses:
        hint = f"add a line '{outward or '127.0.0.1'} {name}' to /etc/hosts"
        remarks.append(Remark("fault", "its name leads to no address", hint))
    elif all(map(is_loopback, addresses)):
        hint = f"for runs on several machines let them meet at {outward}, not at {name}"
        says = "other machines cannot meet here by that name"
        remarks.append(Remark("note", says, hint if outward else ""))
    ports = {place: bind_error(place) for place in ("localhost", outward) if place}
    for place, why in ports.items():
        if why:
            hint = "ranks meet at a free port: look at the firewall, ulimit -n and lo"
            remarks.append(Remark("fault", f"no port at {place}: {why}", hint))
    free = [place for place, why in ports.items() if not why]
    says = f"{name} is {', '.join(addresses) if addresses else 'unknown'}"
    if free:
        says += f"; free ports at {' and '.join(free)}"
    evidence = {"name": name, "addresses": addresses, "outward": outward, "ports": ports}
    return make_finding("host", says, remarks, evidence)


def resolve_host(name: str) -> list[str] | None:
    """Return the addresses of a name; None if the name server does not answer in time."""
    answers: list[list[str]] = []

    def look() -> None:
        try:
            found = socket.getaddrinfo(name, None, proto=socket.IPPROTO_TCP)
            answers.append(list(dict.fromkeys(str(each[4][0]) for each in found)))
        except (OSError, UnicodeError):
            answers.append([])

    looking = threading.Thread(target=look, daemon=True)  # It cannot be told to stop.
    looking.start()
    looking.join(RESOLVE_SECONDS)
    return answers[0] if answers else None


def bind_error(place: str) -> str:
    """Return why no port can be had at a place, or nothing if one can."""
    try:
        with socket.socket() as probe:
            probe.bind((place, 0))
            probe.listen(1)
            with socket.create_connection(probe.getsockname(), timeout=2):
                return ""
    except OSError as why:
        return why.strerror or str(why)
