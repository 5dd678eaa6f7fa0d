"""Check where ranks can rendezvous: interfaces, the host name, free ports."""

import ipaddress
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import psutil

from scalewise.doctor.finding import Finding, Remark, make_finding
from scalewise.errors import shown

INTERFACE_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
"""Variables by which users select the network interface of ranks."""
RESOLVE_SECONDS = 3.0
"""Seconds that resolving a host name may take."""


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface: whether it is up, and its addresses."""

    name: str
    up: bool
    addresses: tuple[str, ...]

    @property
    def usable(self) -> bool:
        """Whether ranks can connect over this interface."""
        return self.up and bool(self.addresses)

    @property
    def problem(self) -> str:
        """Why ranks cannot connect over this interface; empty if they can."""
        if not self.up:
            return "is down"
        return "" if self.addresses else "has no address"

    @property
    def outward(self) -> str | None:
        """Its first IPv4 address that another machine could use; None without any."""
        # An IPv6 address contains a colon.
        return next((ip for ip in self.addresses if ":" not in ip and not is_loopback(ip)), None)


def list_interfaces() -> list[Interface]:
    """Return the interfaces of this machine, usable ones with outward addresses first."""
    states, entries = psutil.net_if_stats(), psutil.net_if_addrs()
    families = (socket.AF_INET, socket.AF_INET6)
    listed = [
        Interface(
            name,
            up=name in states and states[name].isup,
            addresses=tuple(e.address for e in entries.get(name, ()) if e.family in families),
        )
        for name in {*entries, *(name for _, name in socket.if_nameindex())}
    ]
    return sorted(listed, key=lambda i: (not i.usable, not i.outward, i.name))


def is_loopback(address: str) -> bool:
    """Return whether an address, possibly with a scope as in ``fe80::1%eth0``, is a loopback."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def check_variable(variable: str, value: str, interfaces: Sequence[Interface]) -> list[Remark]:
    """Return what is wrong with the interfaces that a variable selects."""
    usable = [interface.name for interface in interfaces if interface.usable]
    choices = f", or set it to one of: {', '.join(usable)}" if usable else ""
    remedy = f"unset {variable}{choices}"
    is_nccl = variable.startswith("NCCL")
    if is_nccl and value.startswith("^"):  # NCCL excludes the prefixes after "^".
        excluded = tuple(value[1:].split(","))
        if not all(name.startswith(excluded) for name in usable):
            return []
        return [Remark("fault", f"{variable}={value} leaves no interface", remedy)]
    # Gloo takes exact names. NCCL takes prefixes, or exact names after "=".
    exact = not is_nccl or value.startswith("=")
    names = (value.removeprefix("=") if is_nccl else value).split(",")
    remarks = []
    for name in names:
        matching = [i for i in interfaces if (i.name == name if exact else i.name.startswith(name))]
        if not any(interface.usable for interface in matching):
            problem = f"there is no interface {shown(name)}"
            if matching:
                problem = f"{matching[0].name} {matching[0].problem}"
            remarks.append(Remark("fault", f"{variable}={value}: {problem}", remedy))
    return remarks


def check_interfaces(env: Mapping[str, str], interfaces: Sequence[Interface]) -> Finding:
    """Report the interfaces, and whether the environment selects a usable one."""
    remarks = [
        remark
        for variable in INTERFACE_VARIABLES
        if env.get(variable)
        for remark in check_variable(variable, env[variable], interfaces)
    ]
    usable = [interface for interface in interfaces if interface.usable]
    addresses = [f"{i.name} {i.outward or i.addresses[0]}" for i in usable]
    if not usable:
        hint = "bring one up: ip link set lo up"
        remarks.append(Remark("fault", "no interface for a rendezvous of ranks", hint))
    evidence = {i.name: {**asdict(i), "usable": i.usable} for i in interfaces}
    variables = {variable: env.get(variable) for variable in INTERFACE_VARIABLES}
    says = ", ".join(addresses) or "none is up with an address"
    return make_finding("interfaces", says, remarks, {"interfaces": evidence, **variables})


def check_host(name: str, interfaces: Sequence[Interface]) -> Finding:
    """Report what the host name resolves to, and whether a port is free there."""
    addresses = resolve_host(name)
    outward = next((i.outward for i in interfaces if i.usable and i.outward), None)
    hosts_file_hint = f"add a line '{outward or '127.0.0.1'} {name}' to /etc/hosts"
    remarks = []
    if addresses is None:
        hint = f"wait for the name server, or {hosts_file_hint}"
        remarks.append(Remark("fault", "the name server does not answer", hint))
    elif not addresses:
        remarks.append(Remark("fault", "its name resolves to no address", hosts_file_hint))
    elif all(map(is_loopback, addresses)):
        hint = f"for runs on several machines use {outward} as the rendezvous, not {name}"
        says = "other machines cannot reach it by that name"
        remarks.append(Remark("note", says, hint if outward else ""))
    ports = {address: bind_error(address) for address in ("localhost", outward) if address}
    for address, error in ports.items():
        if error:
            hint = "the rendezvous needs a free port: check the firewall, ulimit -n and lo"
            remarks.append(Remark("fault", f"no port at {address}: {error}", hint))
    free = [address for address, error in ports.items() if not error]
    says = f"{name} is {', '.join(addresses) if addresses else 'unknown'}"
    if free:
        says += f"; free ports at {' and '.join(free)}"
    evidence = {"name": name, "addresses": addresses, "outward": outward, "ports": ports}
    return make_finding("host", says, remarks, evidence)


def resolve_host(name: str) -> list[str] | None:
    """Return the addresses of a name; None if the name server does not answer in time."""
    answers: list[list[str]] = []

    def resolve() -> None:
        try:
            entries = socket.getaddrinfo(name, None, proto=socket.IPPROTO_TCP)
            answers.append(list(dict.fromkeys(str(entry[4][0]) for entry in entries)))
        except (OSError, UnicodeError):
            answers.append([])

    # getaddrinfo has no timeout: use a daemon thread, which does not delay our exit.
    thread = threading.Thread(target=resolve, daemon=True)
    thread.start()
    thread.join(RESOLVE_SECONDS)
    return answers[0] if answers else None


def bind_error(address: str) -> str:
    """Return why no free port at an address accepts connections; empty if one does."""
    try:
        with socket.socket() as probe:
            probe.bind((address, 0))
            probe.listen(1)
            with socket.create_connection(probe.getsockname(), timeout=2):
                return ""
    except OSError as error:
        return error.strerror or str(error)
