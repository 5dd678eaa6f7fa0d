"""ZeRO stage 1: replicas as in DDP, with the optimizer state sharded over them."""

from collections.abc import Iterable
from typing import cast

from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.optim import Optimizer

from scalewise.frameworks.torch.parallel.assemble import build_optimizer
from scalewise.frameworks.torch.parallel.ddp import DEFAULT_BUCKETS, Buckets, replicate
from scalewise.frameworks.torch.parallel.mesh import axis_size
from scalewise.frameworks.torch.task import Parallel, Task
from scalewise.spec import RunSpec


def parallelize(
    task: Task, mesh: DeviceMesh, spec: RunSpec, *, buckets: Buckets = DEFAULT_BUCKETS
) -> Parallel:
    """Replicate the model; each replica updates a part of the parameters and broadcasts them."""

    def make_optimizer(task: Task, parameters: Iterable[Tensor]) -> Optimizer:
        if axis_size(mesh, "replicate") == 1:
            return build_optimizer(task, parameters)
        return ZeroRedundancyOptimizer(
            parameters,
            cast(type[Optimizer], task.optimizer.func),
            process_group=mesh.get_group("replicate"),
            **task.optimizer.keywords,
        )

    return replicate(task, mesh, spec, buckets, make_optimizer)
