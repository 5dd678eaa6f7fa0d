"""The exchange of the fake machine's ranks where each is a process: they wait for each other.

Rank 0 listens at MASTER_ADDR and MASTER_PORT; every other rank sends it a byte and waits for one.
As with a real library, all ranks fail if one of them is gone.
"""

import os
import socket
import time
from contextlib import ExitStack

CONNECT_SECONDS = 60.0
"""How long a rank tries to reach rank 0, which may start later."""
BYTE = b"\1"


class Exchange:
    """The connections of one rank; close it when the training is over."""

    def __init__(self, rank: int, world: int) -> None:
        self._sockets = ExitStack()
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        self._is_first = rank == 0
        self._peers: list[socket.socket] = []
        if world == 1:
            return
        if self._is_first:
            with socket.create_server(address, backlog=world) as server:
                server.settimeout(CONNECT_SECONDS)
                for _ in range(world - 1):
                    self._add(server.accept()[0])
        else:
            self._add(_connect(address))

    def wait_for_all(self) -> None:
        """Return when all ranks have called this."""
        if self._is_first:
            for peer in self._peers:
                _receive(peer)
        for peer in self._peers:
            peer.sendall(BYTE)
        if not self._is_first:
            for peer in self._peers:
                _receive(peer)

    def close(self) -> None:
        self._sockets.close()

    def _add(self, peer: socket.socket) -> None:
        peer.settimeout(None)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._peers.append(self._sockets.enter_context(peer))


def _receive(peer: socket.socket) -> None:
    if not peer.recv(1):
        raise ConnectionError("another rank closed its connection")


def _connect(address: tuple[str, int]) -> socket.socket:
    deadline = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            return socket.create_connection(address, timeout=CONNECT_SECONDS)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
