"""Parallel strategies as two queues of a device's tasks: computation and communication. All devices
do the same. ``StrategyTraits.simulated`` selects the class of a strategy.
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
    """Tasks of computation and of communication of a device in one step, in order of execution."""

    compute: list[Task]
    exchange: list[Task]
    bubble: float = 0.0
    """Seconds in addition to both queues, in which a pipeline stage waits for other stages."""


@dataclass(frozen=True, slots=True)
class Ddp:
    """Every device holds the model; gradient buckets are all-reduced during the backward."""

    name: ClassVar[str] = "ddp"

    def replicas(self, topology: Topology) -> int:
        """Return the number of data-parallel replicas."""
        return topology.world

    def part(self, work: Work, topology: Topology) -> Work:
        """Return the part that one device does of ``work``, the work of a whole model."""
        return work

    def queues(self, part: Work, exchange: Exchange, topology: Topology) -> Queues:
        """Return the tasks in one step of a device that does this part."""
        return _all_reduce_queues(part, part.backward, exchange, topology)


@dataclass(frozen=True, slots=True)
class Fsdp:
    """The model is sharded: each block is gathered while the block before it is computed, and its
    gradients are reduce-scattered. A block's shares of forward and backward are assumed equal.
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
        exchanges: list[Task] = []

        def gather_and_compute(size: float, seconds: float) -> None:
            """Gather a block while the block before it is computed, then compute it."""
            gather = exchange.seconds("all-gather", size, topology)
            exchanges.append(Task(gather, after=max(0, len(compute) - 1)))
            compute.append(Task(seconds, after=len(exchanges)))

        for micro_step in range(part.accumulate):
            for size, share in reversed(blocks):
                gather_and_compute(size, share * part.forward)
            scatters: list[Task] = []
            for size, share in blocks:
                gather_and_compute(size, share * part.backward)
                # The previous block's scatter is queued only now, after the gather of this block:
                # queued earlier, it would delay that gather until the previous block is computed.
                exchanges += scatters
                scatter = Task(exchange.seconds("reduce-scatter", size, topology), len(compute))
                scatters = [scatter] if micro_step == part.accumulate - 1 else []
            exchanges += scatters
        after_blocks = remainder * (part.forward + part.backward)
        seconds = after_blocks * part.accumulate + part.optimizer
        compute.append(Task(seconds, after=len(exchanges)))
        return Queues(compute, exchanges)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Stages of a model in sequence. The bubble is (p − 1)/(v m + p − 1) of the step, with p
    stages, m micro-batches and v rounds. Stages are assumed to take equally long. Transfers between
    stages are assumed to be hidden, except while the pipeline fills and drains.
    """

    name: ClassVar[str] = "pipeline"
    stages: int
    pipeline_micro_batches: int = 1
    rounds: int = 1
    activation_bytes: float = 0.0
    """Bytes that a stage sends to the next stage for one micro-batch."""

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
        # Gradients of a stage are all-reduced between the replicas of that stage.
        replicas_per_node = max(1, topology.devices // self.stages)
        replica_nodes = max(1, self.replicas(topology) // replicas_per_node)
        replica_topology = Topology(replica_nodes, replicas_per_node)
        last_backward = part.backward / self.pipeline_micro_batches
        queues = _all_reduce_queues(part, last_backward, exchange, replica_topology)
        micro_batch = (part.forward + part.backward) / self.pipeline_micro_batches
        bubble = (self.stages - 1) * micro_batch / self.rounds
        # Filling and draining: one micro-batch goes through all stages and back. Successive stages
        # fill one node before the next.
        nodes, size = -(-self.stages // topology.devices), self.activation_bytes
        transfers = (self.stages - nodes) * exchange.seconds("point-to-point", size, Topology(1, 2))
        if nodes > 1:
            transfers += (nodes - 1) * exchange.seconds("point-to-point", size, Topology(2, 1))
        return replace(queues, bubble=(bubble + 2 * transfers) * part.accumulate)


Strategy = Ddp | Fsdp | Pipeline


def strategy_from_spec(spec: RunSpec) -> Strategy:
    """Return the simulated strategy of a run; raise if it cannot be simulated."""
    simulated, degrees = spec.traits.simulated, spec.degrees
    if simulated and degrees.tensor == 1:
        if degrees.pipeline == 1:
            return Fsdp() if simulated == "all-gather" else Ddp()
        if degrees.shard == 1:
            return Pipeline(degrees.pipeline, spec.pipeline_micro_batches, spec.rounds)
    raise SpecError(
        f"{spec.strategy} with {degrees} cannot be simulated",
        hint="ddp, fsdp and pipelines without sharding can be simulated",
    )


def _all_reduce_queues(
    part: Work, backward: float, exchange: Exchange, topology: Topology
) -> Queues:
    """Return a step that exchanges buckets as they get ready in its last ``backward`` seconds."""
    before_exchange = part.accumulate * (part.forward + part.backward) - backward
    exchanges = [  # A bucket waits for the first task below and for its own share of the backward.
        Task(exchange.seconds("all-reduce", bucket.size, topology), after=computed)
        for computed, bucket in enumerate(part.buckets, start=2)
    ]
    backwards = [Task(share * backward) for share in _backward_shares(part)]
    compute = [Task(before_exchange), *backwards, Task(part.optimizer, after=len(exchanges))]
    return Queues(compute, exchanges)


def _backward_shares(part: Work) -> list[float]:
    """Return the share of the backward that each bucket takes, and finally the remaining share."""
    ready = (0.0, *(bucket.ready for bucket in part.buckets), 1.0)
    return [later - earlier for earlier, later in pairwise(ready)]
