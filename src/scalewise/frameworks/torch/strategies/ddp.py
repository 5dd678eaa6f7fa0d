"""Data parallelism: every replica holds the model, gradients are averaged."""

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from scalewise.frameworks.torch.mesh import size
from scalewise.frameworks.torch.strategies.assemble import assemble
from scalewise.frameworks.torch.strategies.fsdp import sharded
from scalewise.frameworks.torch.task import Parallel, Task
from scalewise.spec import RunSpec


def parallelize(task: Task, mesh: DeviceMesh, spec: RunSpec) -> Parallel:
    """Replicate the model and overlap the gradient all-reduce with backward."""
    return assemble(task, mesh, spec, lambda part: replicated(part, mesh))


def replicated(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Return one replica of a model, or of a stage of it."""
    if size(mesh, "replicate") == 1:
        # One replica has nobody to talk to: wrapped, the baseline would be slower
        # and every other scale would look better than it is.
        return model
    if size(mesh, "tensor") > 1:
        return sharded(model, mesh)  # Over one device each: what is split, DDP cannot hold.
    return DistributedDataParallel(
        model, process_group=mesh.get_group("replicate"), gradient_as_bucket_view=True
    )
