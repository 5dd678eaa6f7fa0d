"""Measure the clock offset between a job's nodes: the first node serves its time over UDP."""

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

REPLY_SECONDS = 0.05
"""Timeout of a request; a slower reply would be too inaccurate to be useful."""
TIME = struct.Struct("!d")

Clock = Callable[[], float]


def serve_time(server: socket.socket, clock: Clock = time.time) -> None:
    """Reply to each request with the current time, until the socket is closed."""
    with suppress(OSError):
        while True:
            _, client = server.recvfrom(1)
            server.sendto(TIME.pack(clock()), client)


class ClockComparison:
    """Compares this node's clock with that of the node at ``address``."""

    def __init__(self, address: tuple[str, int], clock: Clock = time.time) -> None:
        self._address, self._clock = address, clock

    def measure(self) -> tuple[float, float] | None:
        """Return the seconds by which our clock is ahead, and the error bound; None on timeout."""
        # A new socket per request: a late reply cannot be mistaken for one to the next request.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(REPLY_SECONDS)
            try:
                client.connect(self._address)
                began = self._clock()
                client.send(b"?")
                (remote,) = TIME.unpack(client.recv(TIME.size))
            except (OSError, struct.error):
                return None
        ended = self._clock()
        return (began + ended) / 2 - remote, (ended - began) / 2


def start_comparison(environment: Mapping[str, str] = os.environ) -> ClockComparison | None:
    """Start the time server on a Slurm job's first node; return a comparison on the others."""
    nodes, node = environment.get("SLURM_NNODES", "1"), environment.get("SLURM_NODEID")
    host, port = environment.get("MASTER_ADDR"), environment.get("MASTER_PORT")
    if nodes == "1" or node is None or not host or not port:
        return None
    if node != "0":
        return ClockComparison((host, int(port)))
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("", int(port)))  # UDP; the ranks' rendezvous uses the TCP port of this number.
    threading.Thread(target=serve_time, args=(server,), daemon=True).start()
    return None
