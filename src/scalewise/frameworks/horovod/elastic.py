"""Elastic runs: when ranks are lost, the remaining ones continue.

Horovod raises an error on the remaining ranks before their weights change. They do a new rendezvous
and copy the state of the rank that has done most steps. The batch per rank stays, so a step has
fewer samples: the record names the lost ranks, and analyses exclude such a run.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import torch.distributed as dist

from scalewise.frameworks import Session
from scalewise.frameworks.torch.session import TorchSession
from scalewise.frameworks.torch.setup import session as torch_session
from scalewise.frameworks.train_log import say
from scalewise.probe import Laps, Probe
from scalewise.spec import RunSpec, Topology


@contextmanager
def session(spec: RunSpec, rank: int, probe: Probe) -> Iterator[Session]:
    """Set up a training that continues when ranks are lost."""
    with torch_session(spec, rank, probe) as first_session:
        elastic = Elastic(first_session, spec, rank, probe)
        yield cast(Session, elastic)
        elastic.close()


class Elastic:
    """A session that forwards to a TorchSession, and makes a new one when ranks are lost."""

    def __init__(self, session: TorchSession, spec: RunSpec, rank: int, probe: Probe) -> None:
        self._current, self._spec, self._rank, self._probe = session, spec, rank, probe
        self._lost: list[int] = []
        """The original numbers of the lost ranks."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._current, name)

    def step(self, probe: Laps) -> int:
        """Do one step; repeat it with fewer ranks if some are lost. Return this rank's samples."""
        from horovod.common.exceptions import HorovodInternalError

        before = self._current
        try:
            return before.step(probe)
        except HorovodInternalError:
            self._continue_with_remaining()
        probe.lap("sync")
        # If another rank had completed this step, its state was copied: the step is done.
        if self._current.steps_done > before.steps_done:
            return before.step_samples
        return self.step(probe)

    def exchange_measurements(self) -> dict[str, Any]:
        """Return measurements of the gradient exchange, and the lost ranks."""
        lost = {"lost": self._lost} if self._lost else {}
        return {**self._current.exchange_measurements(), **lost}

    def _continue_with_remaining(self) -> None:
        import horovod.torch as hvd

        former = self._current
        former.close()
        hvd.shutdown()
        hvd.init()  # Returns when all remaining ranks have joined.
        remaining = hvd.allgather_object((self._rank, former.steps_done))  # By new rank.
        source_rank = max(range(len(remaining)), key=lambda n: remaining[n][1])  # Most steps done.
        # Start PyTorch's process group again with Horovod's ranks, which are all on this host.
        backend = dist.get_backend()
        dist.destroy_process_group()
        with socket.socket() as reserved:
            reserved.bind(("localhost", 0))
            port = hvd.broadcast_object(reserved.getsockname()[1], root_rank=0)
        address = f"tcp://localhost:{port}"
        dist.init_process_group(backend, address, rank=hvd.rank(), world_size=hvd.size())
        spec = replace(self._spec, topology=Topology(1, hvd.size()))
        self._current = former.with_ranks_of(spec)
        states = [former.state_to_transfer() if hvd.rank() == source_rank else None]
        dist.broadcast_object_list(states, source_rank)
        assert states[0] is not None
        self._current.take_over(states[0])
        self._lost = sorted({*range(self._spec.topology.world)} - {rank for rank, _ in remaining})
        self._probe.note(lost=self._lost, after=self._current.steps_done, left_with=len(remaining))
        if hvd.rank() == 0:
            ranks = ", ".join(map(str, self._lost))
            step = self._current.steps_done + 1
            say(f"lost           rank {ranks} by step {step:,}; {len(remaining)} ranks continue")
