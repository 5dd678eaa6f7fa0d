"""Parallel strategies as the two queues of one device, which is simulated for all. A strategy's
traits say which of the classes simulates it.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

from scalewise.analysis.simulate.rank_work import Bucket, Work
from scalewise.analysis.simulate.schedule import Task
from scalewise.analysis.simulate.sweep import Exchange
from scalewise.errors import SpecError
from scalewise.spec import RunSpec, Topology
from scalewise.validate import check_integer


@dataclass(frozen=True, slots=True)
class Queues:
    """What a device computes and communicates in a step, each in its order."""

    compute: list[Task]
    exchange: list[Task]
    bubble: float = 0.0
    """Additional seconds in which a stage waits for other stages."""


@dataclass(frozen=True, slots=True)
class Ddp:
    """Every device holds the model; gradient buckets are all-reduced during the backward."""

    name: ClassVar[str] = "ddp"

    def replicas(self, topology: Topology) -> int:
        """Return the number of data-parallel replicas."""
        return topology.world

    def part(self, work: Work, topology: Topology) -> Work:
        """Return one device's part of the work of a whole model."""
        return work

    def queues(self, part: Work, exchange: Exchange, topology: Topology) -> Queues:
        """Return the step of a device with this part."""
        return _all_reduce_queues(part, part.backward, exchange, topology)


@dataclass(frozen=True, slots=True)
class Fsdp:
    """All devices share the model: a block is gathered before each use, one ahead, and its
    gradients are reduce-scattered. Its shares of forward and backward are assumed equal.
    """

    name: ClassVar[str] = "fsdp"

    def replicas(self, topology: Topology) -> int:
        return topology.world

    def part(self, work: Work, topology: Topology) -> Work:
        return replace(work, optimizer=work.optimizer / topology.world)

    def queues(self, part: Work, exchange: Exchange, topology: Topology) -> Queues:
        *shares, remainder = _backward_shares(part)
        blocks = list(zip((bucket.size for bucket in part.buckets), shares))
        compute: list[Task] = []
        link: list[Task] = []

        def gather_and_compute(size: float, seconds: float) -> None:
            """Gather a block while the block before it is computed, then compute it."""
            gather = exchange.seconds("all-gather", size, topology)
            link.append(Task(gather, after=max(0, len(compute) - 1)))
            compute.append(Task(seconds, after=len(link)))

        for micro_step in range(part.accumulate):
            for size, share in reversed(blocks):
                gather_and_compute(size, share * part.forward)
            scatters: list[Task] = []
            for size, share in blocks:
                gather_and_compute(size, share * part.backward)
                # The scatter of the previous block goes behind the gather of this one: it
                # had to be computed first.
                link += scatters
                scatter = Task(exchange.seconds("reduce-scatter", size, topology), len(compute))
                scatters = [scatter] if micro_step == part.accumulate - 1 else []
            link += scatters
        after_blocks = remainder * (part.forward + part.backward)
        seconds = after_blocks * part.accumulate + part.optimizer
        compute.append(Task(seconds, after=len(link)))
        return Queues(compute, link)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Stages of a model in sequence; the bubble is (p − 1)/(v m + p − 1) of the step, with p
    stages, m small batches and v rounds. Stages are assumed to take equally long, and the transfer
    between them to be hidden except while the pipeline fills and drains.
    """

    name: ClassVar[str] = "pipeline"
    stages: int
    pipeline_micro_batches: int = 1
    rounds: int = 1
    activation_bytes: float = 0.0
    """Bytes that a stage passes on for one small batch."""

    def __post_init__(self) -> None:
        for name in ("stages", "pipeline_micro_batches", "rounds"):
            check_integer(name, getattr(self, name), minimum=1)

    def replicas(self, topology: Topology) -> int:
        if topology.world % self.stages:
            raise SpecError(
                f"{self.stages} stages do not divide {topology.world} devices",
                hint="choose stages that divide the number of devices",
            )
        return topology.world // self.stages

    def part(self, work: Work, topology: Topology) -> Work:
        p = self.stages
        return replace(
            work,
            forward=work.forward / p,
            backward=work.backward / p,
            optimizer=work.optimizer / p,
            buckets=tuple(Bucket(bucket.size / p, bucket.ready) for bucket in work.buckets),
        )

    def queues(self, part: Work, exchange: Exchange, topology: Topology) -> Queues:
        replicas, inside = self.replicas(topology), max(1, topology.devices // self.stages)
        replica_topology = Topology(max(1, replicas // inside), inside)
        last_backward = part.backward / self.pipeline_micro_batches
        queues = _all_reduce_queues(part, last_backward, exchange, replica_topology)
        small_batch = (part.forward + part.backward) / self.pipeline_micro_batches
        bubble = (self.stages - 1) * small_batch / self.rounds
        # One small batch passes through all stages, there and back; neighbours share a node.
        nodes, size = -(-self.stages // topology.devices), self.activation_bytes
        transfers = (self.stages - nodes) * exchange.seconds("point-to-point", size, Topology(1, 2))
        if nodes > 1:
            transfers += (nodes - 1) * exchange.seconds("point-to-point", size, Topology(2, 1))
        return replace(queues, bubble=(bubble + 2 * transfers) * part.accumulate)


Strategy = Ddp | Fsdp | Pipeline


def strategy_from_spec(spec: RunSpec) -> Strategy:
    """Return how a run spreads its model; refuse what cannot be simulated."""
    simulated, degrees = spec.traits.simulated, spec.degrees
    if simulated and degrees.tensor == 1:
        if degrees.pipeline == 1:
            return Fsdp() if simulated == "all-gather" else Ddp()
        if degrees.shard == 1:
            return Pipeline(degrees.pipeline, spec.pipeline_micro_batches, spec.rounds)
    raise SpecError(
        f"{spec.strategy} with {degrees} cannot be simulated",
        hint="ddp, fsdp and pipelines of replicas can",
    )


def _all_reduce_queues(
    part: Work, backward: float, exchange: Exchange, topology: Topology
) -> Queues:
    """Return a step whose last ``backward`` seconds exchange buckets as they become ready."""
    lead = part.accumulate * (part.forward + part.backward) - backward
    link = [
        Task(exchange.seconds("all-reduce", bucket.size, topology), after=computed)
        for computed, bucket in enumerate(part.buckets, start=2)
    ]
    backwards = [Task(share * backward) for share in _backward_shares(part)]
    return Queues([Task(lead), *backwards, Task(part.optimizer, after=len(link))], link)


def _backward_shares(part: Work) -> list[float]:
    """Return the share of the backward that each bucket takes; last, what remains after them."""
    ready = (0.0, *(bucket.ready for bucket in part.buckets), 1.0)
    return [later - earlier for earlier, later in pairwise(ready)]
