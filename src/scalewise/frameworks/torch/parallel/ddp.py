"""Data parallelism: every replica holds the model, gradients are averaged."""

import re
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from scalewise.errors import SpecError
from scalewise.frameworks.torch.parallel import compression
from scalewise.frameworks.torch.parallel.assemble import OptimizerFactory, assemble
from scalewise.frameworks.torch.parallel.fsdp import shard_model
from scalewise.frameworks.torch.parallel.gradient_exchange import GradientExchange
from scalewise.frameworks.torch.parallel.mesh import axis_size
from scalewise.frameworks.torch.task import Parallel, Task
from scalewise.spec import RunSpec
from scalewise.validate import positive, typed, whole

DEFAULT_BUCKET_MB = 25.0
"""What DDP itself takes for a bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """How gradients are bundled and packed for their exchange; nothing means as DDP itself does."""

    bucket_mb: float | None = None
    """The most MiB of gradients that are exchanged at once."""
    first_bucket_mb: float | None = None
    """The same for those that come first in backward."""
    bucket_view: bool = True
    """Whether gradients live in their bucket, instead of a copy beside it."""
    static_graph: bool = False
    """Whether every step uses the same parameters in the same order."""
    compression: str = "none"
    """In which way gradients are made smaller for the exchange."""
    powersgd_rank: int = 1
    """How many columns are left of a layer's gradient, with ``powersgd``."""

    def __post_init__(self) -> None:
        for name in ("bucket_mb", "first_bucket_mb"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name), example=10)
        for name in ("bucket_view", "static_graph"):
            typed(name, getattr(self, name), bool, "true or false")
        compression.check_compression(self.compression)
        whole("powersgd_rank", self.powersgd_rank, least=1)
        known = signature(DistributedDataParallel).parameters
        if self.first_bucket_mb and "bucket_cap_mb_list" not in known:
            raise SpecError(
                "this version of PyTorch has no setting for the first bucket",
                hint="leave first_bucket_mb out",
            )

    def wrap(self, model: nn.Module, group: dist.ProcessGroup) -> DistributedDataParallel:
        """Return a replica that exchanges its gradients with the others while backward goes on."""
        given: dict[str, Any] = {"bucket_cap_mb": self.bucket_mb}
        if self.first_bucket_mb:
            given = {
                "bucket_cap_mb_list": [self.first_bucket_mb, self.bucket_mb or DEFAULT_BUCKET_MB]
            }
        return Replica(
            model,
            process_group=group,
            gradient_as_bucket_view=self.bucket_view,
            static_graph=self.static_graph,
            **given,
        )


DEFAULT_BUCKETS = Buckets()


class Replica(DistributedDataParallel):
    """DDP, but that parameters which got no gradient are told by their names."""

    def forward(self, *inputs: Any, **named: Any) -> Any:
        try:
            return super().forward(*inputs, **named)  # type: ignore[no-untyped-call]  # PyTorch's.
        except RuntimeError as bad:
            found = re.search(r"did not receive grad for rank \d+: ([\d ]+)", str(bad))
            if not found:
                raise
            learning = [name for name, each in self.module.named_parameters() if each.requires_grad]
            lonely = [learning[int(number)] for number in found[1].split()]
            more = f" and {len(lonely) - 3} more" if len(lonely) > 3 else ""
            raise SpecError(
                f"the loss does not depend on {', '.join(lonely[:3])}{more}, "
                "and replicas wait for the gradients of all that learns",
                hint="write options = {static_graph = true}, freeze them (requires_grad_(False)), "
                "or take them out of the model",
            ) from bad


def parallelize(
    task: Task, mesh: DeviceMesh, spec: RunSpec, *, buckets: Buckets = DEFAULT_BUCKETS
) -> Parallel:
    """Replicate the model and overlap the gradient all-reduce with backward."""
    return replicate(task, mesh, spec, buckets)


def replicate(
    task: Task,
    mesh: DeviceMesh,
    spec: RunSpec,
    buckets: Buckets,
    learn: OptimizerFactory | None = None,
) -> Parallel:
    """Return the task on replicas that exchange gradients; ``learn`` makes their optimizer."""
    exchange = GradientExchange(spec, buckets.compression, buckets.powersgd_rank)

    def replicated(model: nn.Module) -> nn.Module:
        if axis_size(mesh, "replicate") == 1:
            # One replica has nobody to talk to: wrapped, the baseline would be slower
            # and every other scale would look better than it is.
            return model
        if axis_size(mesh, "tensor") > 1:
            return shard_model(model, mesh)  # Over one device each: what is split, DDP cannot hold.
        wrapped = buckets.wrap(model, mesh.get_group("replicate"))
        exchange.join(wrapped, mesh.get_group("replicate"))
        return wrapped

    return replace(assemble(task, mesh, spec, replicated, learn), exchange=exchange)
