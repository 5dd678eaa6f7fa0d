"""Compare the clocks of a run's nodes: the first one answers, the others ask, by datagrams."""

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

PATIENCE = 0.05
"""Seconds to wait for an answer; a longer way tells nothing worth knowing."""
TIME = struct.Struct("!d")

Clock = Callable[[], float]


def answer(on: socket.socket, clock: Clock = time.time) -> None:
    """Tell everyone who asks the time, until the socket is closed."""
    with suppress(OSError):
        while True:
            _, asker = on.recvfrom(1)
            on.sendto(TIME.pack(clock()), asker)


class Comparison:
    """Asks another node the time."""

    def __init__(self, address: tuple[str, int], clock: Clock = time.time) -> None:
        self._address, self._clock = address, clock

    def look(self) -> tuple[float, float] | None:
        """Return by how many seconds our clock is ahead, and how far off that may be."""
        # A socket for each question: no late answer is taken for one to the next.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asks:
            asks.settimeout(PATIENCE)
            try:
                asks.connect(self._address)
                began = self._clock()
                asks.send(b"?")
                (theirs,) = TIME.unpack(asks.recv(TIME.size))
            except (OSError, struct.error):
                return None
        ended = self._clock()
        return (began + ended) / 2 - theirs, (ended - began) / 2


def of_job(environment: Mapping[str, str] = os.environ) -> Comparison | None:
    """Answer the others if we are on a job's first node, and compare with it on another."""
    nodes, node = environment.get("SLURM_NNODES", "1"), environment.get("SLURM_NODEID")
    host, port = environment.get("MASTER_ADDR"), environment.get("MASTER_PORT")
    if nodes == "1" or node is None or not host or not port:
        return None
    if node != "0":
        return Comparison((host, int(port)))
    listening = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listening.bind(("", int(port)))  # The ranks meet at its namesake for streams.
    threading.Thread(target=answer, args=(listening,), daemon=True).start()
    return None
