"""Make a model parallel: cut it into pipeline stages, split layers, then distribute them."""

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
"""Builds the optimizer of a task's parameters."""


def assemble(
    task: Task,
    mesh: DeviceMesh,
    spec: RunSpec,
    distribute: Callable[[nn.Module], nn.Module],
    make_optimizer: OptimizerFactory | None = None,
) -> Parallel:
    """Return the task made parallel.

    ``distribute`` is the strategy itself: it makes a model, or a stage of one, a replica or a
    shard.
    """
    # Imported only if needed: PyTorch's pipeline and tensor parallelism take a second to import.
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
    distributed = [distribute(part) for part in parts]
    parameters = [parameter for part in parts for parameter in part.parameters()]
    optimizer = (make_optimizer or build_optimizer)(task, parameters)
    if axis_size(mesh, "pipeline") > 1:
        return pipeline_steps(task, parts, distributed, optimizer, mesh["pipeline"], spec)
    return Parallel(parts[0], optimizer, single_stage_step(task, distributed[0]))


def build_optimizer(task: Task, parameters: Iterable[Tensor]) -> Optimizer:
    """Return the run's optimizer, with one group of parameters per DTensor layout."""
    groups: dict[Any, list[Tensor]] = {}
    for parameter in parameters:
        groups.setdefault(getattr(parameter, "device_mesh", None), []).append(parameter)
    return task.optimizer([{"params": group} for group in groups.values()])
