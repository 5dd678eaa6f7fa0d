"""Exchange the addresses of all processes through rank 0; standard library only.

Each process binds a free port and sends it to rank 0, which sees the addresses of connections.
"""

import json
import socket
import time

from scalewise.errors import LaunchError

JOIN_SECONDS = 600.0
"""Time within which all ranks must have connected."""
RETRY_SECONDS = 0.2
"""Time between two attempts to connect to rank 0."""


def exchange_addresses(
    rank: int, world: int, host: str, port: int, timeout: float = JOIN_SECONDS
) -> list[str]:
    """Return the address (HOST:PORT) of each of ``world`` processes, by rank."""
    with socket.socket() as reserved:  # Stays bound meanwhile: no other process gets the port.
        reserved.bind(("", 0))
        own_port = reserved.getsockname()[1]
        deadline = time.monotonic() + timeout
        if rank == 0:
            return _serve(world, port, own_port, deadline)
        return _join(rank, host, port, own_port, deadline)


def _serve(world: int, port: int, own_port: int, deadline: float) -> list[str]:
    """Wait on rank 0 for all other ranks, then send all addresses to each of them."""
    peers: dict[int, tuple[socket.socket, int]] = {}  # Connection and own port of each rank.
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("", port))
        server.listen(world)
        while len(peers) < world - 1:
            server.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                peer, _ = server.accept()
                message = json.loads(_read_line(peer, deadline))
                peers[int(message["rank"])] = peer, int(message["port"])
            except TimeoutError as error:
                absent = sorted({*range(1, world)} - {*peers})
                raise LaunchError(
                    f"ranks {absent} did not connect to rank 0 at port {port}"
                ) from error
            except (ValueError, KeyError, TypeError, ConnectionError):
                peer.close()  # Another program, such as a port scanner.
    own_ips = [peer.getsockname()[0] for peer, _ in peers.values()]
    # Ranks on this host may connect through loopback, an address that other hosts cannot use.
    own_ip = next((ip for ip in own_ips if not _is_loopback(ip)), "127.0.0.1")
    addresses = [f"{own_ip}:{own_port}"]
    for rank in range(1, world):
        peer, peer_port = peers[rank]
        peer_ip = peer.getpeername()[0]
        addresses.append(f"{own_ip if _is_loopback(peer_ip) else peer_ip}:{peer_port}")
    for peer, _ in peers.values():
        with peer:
            peer.sendall(json.dumps(addresses).encode() + b"\n")
    return addresses


def _join(rank: int, host: str, port: int, own_port: int, deadline: float) -> list[str]:
    """Send this rank's port to rank 0; return all addresses."""
    while True:
        try:
            timeout = deadline - time.monotonic()
            with socket.create_connection((host, port), timeout=timeout) as server:
                server.sendall(json.dumps({"rank": rank, "port": own_port}).encode() + b"\n")
                addresses: list[str] = json.loads(_read_line(server, deadline))
                return addresses
        except (OSError, ValueError) as error:
            if time.monotonic() + RETRY_SECONDS > deadline:
                raise LaunchError(f"rank {rank} could not reach rank 0 at {host}:{port}") from error
            time.sleep(RETRY_SECONDS)


def _read_line(connection: socket.socket, deadline: float) -> str:
    connection.settimeout(max(0.01, deadline - time.monotonic()))
    with connection.makefile(encoding="utf-8") as lines:
        return lines.readline()


def _is_loopback(ip: str) -> bool:
    return ip.startswith("127.")
