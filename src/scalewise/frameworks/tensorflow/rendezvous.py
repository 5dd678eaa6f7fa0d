"""How processes that know rank 0's address learn everyone's; standard library only.

Each finds a free port for itself and tells rank 0, which tells all. So nobody has to guess
which ports are free elsewhere, nor by which names machines reach each other.
"""

import json
import socket
import time

from scalewise.errors import LaunchError

PATIENCE = 600.0
"""Seconds in which all must have come."""
AGAIN = 0.2
"""Seconds between two knocks at a door that is not open yet."""


def meet(rank: int, world: int, host: str, port: int, patience: float = PATIENCE) -> list[str]:
    """Return where each of ``world`` processes can be reached, by rank."""
    with socket.socket() as mine:
        mine.bind(("", 0))
        own = mine.getsockname()[1]
        until = time.monotonic() + patience
        return (
            _welcome(world, port, own, until) if rank == 0 else _join(rank, host, port, own, until)
        )


def _welcome(world: int, port: int, own: int, until: float) -> list[str]:
    """Wait for all others at rank 0, then tell them of each other."""
    guests: dict[int, tuple[socket.socket, int]] = {}
    with socket.socket() as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(("", port))
        door.listen(world)
        while len(guests) < world - 1:
            door.settimeout(max(0.01, until - time.monotonic()))
            try:
                guest, _ = door.accept()
                told = json.loads(_line(guest, until))
                guests[int(told["rank"])] = guest, int(told["port"])
            except TimeoutError as late:
                absent = sorted({*range(1, world)} - {*guests})
                raise LaunchError(f"ranks {absent} did not come to rank 0 at port {port}") from late
            except (ValueError, KeyError, TypeError, ConnectionError):
                guest.close()  # Somebody else, who knocks at every port.
    seen = [guest.getsockname()[0] for guest, _ in guests.values()]
    home = next((address for address in seen if not _loops(address)), "127.0.0.1")
    places = [f"{home}:{own}"]
    for rank in range(1, world):
        guest, chosen = guests[rank]
        address = guest.getpeername()[0]
        places.append(f"{home if _loops(address) else address}:{chosen}")
    for guest, _ in guests.values():
        with guest:
            guest.sendall(json.dumps(places).encode() + b"\n")
    return places


def _join(rank: int, host: str, port: int, own: int, until: float) -> list[str]:
    """Tell rank 0 where this one is; return where all are."""
    while True:
        try:
            with socket.create_connection((host, port), timeout=until - time.monotonic()) as guest:
                guest.sendall(json.dumps({"rank": rank, "port": own}).encode() + b"\n")
                places: list[str] = json.loads(_line(guest, until))
                return places
        except (OSError, ValueError) as closed:
            if time.monotonic() + AGAIN > until:
                raise LaunchError(f"rank {rank} found no rank 0 at {host}:{port}") from closed
            time.sleep(AGAIN)


def _line(guest: socket.socket, until: float) -> str:
    guest.settimeout(max(0.01, until - time.monotonic()))
    with guest.makefile(encoding="utf-8") as lines:
        return lines.readline()


def _loops(address: str) -> bool:
    """Say whether an address leads back to the machine that uses it."""
    return address.startswith("127.")
