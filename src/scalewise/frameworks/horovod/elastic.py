"""Elastic runs: where ranks are lost, the others go on.

Horovod tells the others in the middle of a step, before their weights change. They join anew, set
the training up for as many as are left, take over from the one that came furthest, and go on:
each with its own batch, so that a step has fewer samples than before. What a step costs is not
the same any more; the record says so, and nothing is concluded from it.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import torch.distributed as dist

from scalewise.frameworks import Session
from scalewise.frameworks.loop import say
from scalewise.frameworks.torch.session import TorchSession
from scalewise.frameworks.torch.setup import session as torch_session
from scalewise.probe import Laps, Probe
from scalewise.spec import RunSpec, Topology


@contextmanager
def session(spec: RunSpec, rank: int, probe: Probe) -> Iterator[Session]:
    """Set up a training that outlives some of its ranks."""
    with torch_session(spec, rank, probe) as first:
        elastic = Elastic(first, spec, rank, probe)
        yield cast(Session, elastic)
        elastic.close()


class Elastic:
    """A session whose steps are done by those ranks that are left."""

    def __init__(self, first: TorchSession, spec: RunSpec, rank: int, probe: Probe) -> None:
        self._current, self._spec, self._rank, self._probe = first, spec, rank, probe
        self._lost: list[int] = []
        """The ranks that are gone, by the numbers they began with."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._current, name)

    def step(self, probe: Laps) -> int:
        """Do one step, with fewer ranks if some are lost on the way; return this rank's samples."""
        from horovod.common.exceptions import HorovodInternalError

        former = self._current
        try:
            return former.step(probe)
        except HorovodInternalError:
            self._go_on()
        probe.lap("sync")
        # Another one may have got this step's gradients to the end: then it is done.
        return former.due if self._current.taken > former.taken else self.step(probe)

    def exchanged(self) -> dict[str, Any]:
        """Return what was seen of gradients, and who was lost."""
        return {**self._current.exchanged(), **({"lost": self._lost} if self._lost else {})}

    def _go_on(self) -> None:
        """Take the training up with those who are left."""
        import horovod.torch as hvd

        former = self._current
        former.close()
        hvd.shutdown()
        hvd.init()  # Returns when all that are left have come.
        left = hvd.allgather_object((self._rank, former.taken))
        furthest = max(range(len(left)), key=lambda each: left[each][1])
        _meet_again(hvd)
        spec = replace(self._spec, topology=Topology(1, hvd.size()))
        self._current = former.on(spec)
        box = [former.carried() if hvd.rank() == furthest else None]
        dist.broadcast_object_list(box, furthest)
        assert box[0] is not None
        self._current.take_over(box[0])
        self._lost = sorted({*range(self._spec.topology.world)} - {rank for rank, _ in left})
        self._probe.note(lost=self._lost, after=self._current.taken, left_with=len(left))
        if hvd.rank() == 0:
            gone = ", ".join(map(str, self._lost))
            step = self._current.taken + 1
            say(f"lost           rank {gone} by step {step:,}; {len(left)} go on")


def _meet_again(hvd: Any) -> None:
    """Have PyTorch's ranks meet anew, as many as Horovod's are: all on this machine."""
    backend = dist.get_backend()
    dist.destroy_process_group()
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = hvd.broadcast_object(free.getsockname()[1], root_rank=0)
    place = {"rank": hvd.rank(), "world_size": hvd.size()}
    dist.init_process_group(backend, init_method=f"tcp://localhost:{port}", **place)
