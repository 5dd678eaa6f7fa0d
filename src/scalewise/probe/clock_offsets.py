"""Measure how far the clocks of a job's nodes differ; the first node serves its time over UDP."""

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from scalewise.record.run_clock import run_clock

REPLY_SECONDS = 0.05
"""Timeout of a request; a slower reply would be too inaccurate to be useful."""
TIME = struct.Struct("!d")

Clock = Callable[[], float]
Address = tuple[str, int]


def serve_time(server: socket.socket, clock: Clock = time.time) -> None:
    """Reply to each request with the current time, until the socket is closed."""
    with suppress(OSError):
        while True:
            _, client = server.recvfrom(1)
            server.sendto(TIME.pack(clock()), client)


def measure_offset(address: Address, clock: Clock = time.time) -> tuple[float, float] | None:
    """Return our clock's seconds ahead of the server's, and the error bound; None on timeout."""
    # Each request has its own socket, so that a late reply is not taken for a later request's.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(REPLY_SECONDS)
        try:
            client.connect(address)
            began = clock()
            client.send(b"?")
            (remote,) = TIME.unpack(client.recv(TIME.size))
        except (OSError, struct.error):
            return None
    ended = clock()
    return (began + ended) / 2 - remote, (ended - began) / 2


def find_time_server(environment: Mapping[str, str] = os.environ) -> Address | None:
    """Start the time server on the first node of a Slurm job; return its address on other nodes."""
    nodes, node = environment.get("SLURM_NNODES", "1"), environment.get("SLURM_NODEID")
    host, port = environment.get("MASTER_ADDR"), environment.get("MASTER_PORT")
    if nodes == "1" or node is None or not host or not port:
        return None
    if node != "0":
        return host, int(port)
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("", int(port)))  # This is UDP: the ranks' rendezvous uses the TCP port only.
    threading.Thread(target=serve_time, args=(server, run_clock().now), daemon=True).start()
    return None
