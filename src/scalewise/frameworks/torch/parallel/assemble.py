"""From a model to what this rank holds of it: cut into stages, split, then shared out."""

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer

from scalewise.frameworks.torch.models.block_compile import (
    apply_activation_checkpointing,
    compile_model,
)
from scalewise.frameworks.torch.parallel.mesh import axis_size
from scalewise.frameworks.torch.parallel.step import single_stage_step
from scalewise.frameworks.torch.task import Parallel, Task
from scalewise.spec import RunSpec

OptimizerFactory = Callable[[Task, Iterable[Tensor]], Optimizer]
"""Makes the optimizer of a task's parameters."""


def assemble(
    task: Task,
    mesh: DeviceMesh,
    spec: RunSpec,
    share: Callable[[nn.Module], nn.Module],
    learn: OptimizerFactory | None = None,
) -> Parallel:
    """Return the task made parallel.

    ``share`` does what a strategy is about: it makes a model, or a stage of
    one, a replica or a shard among others. ``learn`` makes the optimizer. What
    PyTorch needs to split a model takes a second to import.
    """
    parts = [task.model]
    if axis_size(mesh, "pipeline") > 1:
        from scalewise.frameworks.torch.parallel.pipeline import build_stages, pipeline_steps

        parts = build_stages(task.model, mesh, spec)
    for part in parts:
        if axis_size(mesh, "tensor") > 1:
            from scalewise.frameworks.torch.parallel.tensor import split_blocks

            split_blocks(part, mesh["tensor"])
        apply_activation_checkpointing(part, spec)
        compile_model(part, spec)
    shared = [share(part) for part in parts]
    parameters = [each for part in parts for each in part.parameters()]
    optimizer = (learn or build_optimizer)(task, parameters)
    if axis_size(mesh, "pipeline") > 1:
        return pipeline_steps(task, parts, shared, optimizer, mesh["pipeline"], spec)
    return Parallel(parts[0], optimizer, single_stage_step(task, shared[0]))


def build_optimizer(task: Task, parameters: Iterable[Tensor]) -> Optimizer:
    """Return the run's optimizer; tensors of one layout go together, others cannot."""
    groups: dict[Any, list[Tensor]] = {}
    for each in parameters:
        groups.setdefault(getattr(each, "device_mesh", None), []).append(each)
    return task.optimizer([{"params": group} for group in groups.values()])
