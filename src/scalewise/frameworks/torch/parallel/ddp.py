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
from scalewise.validate import check_integer, check_positive, check_type

DEFAULT_BUCKET_MB = 25.0
"""DDP's own default for the size of a bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """How gradients are bucketed and compressed for the all-reduce. None means DDP's default."""

    bucket_mb: float | None = None
    """The size of a bucket in MiB."""
    first_bucket_mb: float | None = None
    """The size in MiB of the first bucket that backward fills."""
    bucket_view: bool = True
    """Whether gradients are views into their bucket, instead of copies."""
    static_graph: bool = False
    """Whether DDP may rely on every step using the same parameters in the same order."""
    compression: str = "none"
    """One of ``compression.KINDS``."""
    powersgd_rank: int = 1
    """The rank of the approximated gradient matrices, with ``powersgd``."""

    def __post_init__(self) -> None:
        for name in ("bucket_mb", "first_bucket_mb"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name), example=10)
        for name in ("bucket_view", "static_graph"):
            check_type(name, getattr(self, name), bool, "true or false")
        compression.check_compression(self.compression)
        check_integer("powersgd_rank", self.powersgd_rank, minimum=1)
        parameters = signature(DistributedDataParallel).parameters
        if self.first_bucket_mb and "bucket_cap_mb_list" not in parameters:
            raise SpecError(
                "this version of PyTorch has no setting for the first bucket",
                hint="leave first_bucket_mb out",
            )

    def wrap(self, model: nn.Module, group: dist.ProcessGroup) -> DistributedDataParallel:
        """Return the model in DDP, which overlaps the all-reduce with backward."""
        sizes: dict[str, Any] = {"bucket_cap_mb": self.bucket_mb}
        if self.first_bucket_mb:
            caps = [self.first_bucket_mb, self.bucket_mb or DEFAULT_BUCKET_MB]
            sizes = {"bucket_cap_mb_list": caps}
        return Replica(
            model,
            process_group=group,
            gradient_as_bucket_view=self.bucket_view,
            static_graph=self.static_graph,
            **sizes,
        )


DEFAULT_BUCKETS = Buckets()


class Replica(DistributedDataParallel):
    """DDP whose error names the parameters without a gradient, not only their indices."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().forward(*args, **kwargs)  # type: ignore[no-untyped-call]  # PyTorch's.
        except RuntimeError as error:
            match = re.search(r"did not receive grad for rank \d+: ([\d ]+)", str(error))
            if not match:
                raise
            trained = [name for name, p in self.module.named_parameters() if p.requires_grad]
            unused = [trained[int(index)] for index in match[1].split()]
            more = f" and {len(unused) - 3} more" if len(unused) > 3 else ""
            raise SpecError(
                f"the loss does not depend on {', '.join(unused[:3])}{more}, "
                "and replicas wait for the gradients of all trainable parameters",
                hint="write options = {static_graph = true}, freeze them (requires_grad_(False)), "
                "or take them out of the model",
            ) from error


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
    make_optimizer: OptimizerFactory | None = None,
) -> Parallel:
    """Return the parallel task: every replica holds the model, and replicas average gradients."""
    exchange = GradientExchange(spec, buckets.compression, buckets.powersgd_rank)

    def wrap(model: nn.Module) -> nn.Module:
        if axis_size(mesh, "replicate") == 1:
            # DDP would slow down the one-replica baseline, and so make scaling look too good.
            return model
        if axis_size(mesh, "tensor") > 1:
            # DDP does not support DTensors. FSDP does; on a "shard" axis of length 1 it replicates.
            return shard_model(model, mesh)
        wrapped = buckets.wrap(model, mesh.get_group("replicate"))
        exchange.register_hook(wrapped, mesh.get_group("replicate"))
        return wrapped

    return replace(assemble(task, mesh, spec, wrap, make_optimizer), exchange=exchange)
