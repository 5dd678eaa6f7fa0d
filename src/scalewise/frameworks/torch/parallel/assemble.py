"""From a model to what this rank holds of it: cut into stages, split, then shared out."""

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer

from scalewise.frameworks.torch.models.block_compile import compile_model, recompute
from scalewise.frameworks.torch.parallel.mesh import size
from scalewise.frameworks.torch.parallel.step import whole_step
from scalewise.frameworks.torch.task import Parallel, Task
from scalewise.spec import RunSpec

Learn = Callable[[Task, Iterable[Tensor]], Optimizer]
"""Makes the optimizer of a task's parameters."""


def assemble(
    task: Task,
    mesh: DeviceMesh,
    spec: RunSpec,
    share: Callable[[nn.Module], nn.Module],
    learn: Learn | None = None,
) -> Parallel:
    """Return the task made parallel.

    ``share`` does what a strategy is about: it makes a model, or a stage of
    one, a replica or a shard among others. ``learn`` makes the optimizer. What
    PyTorch needs to split a model takes a second to import.
    """
    parts = [task.model]
    if size(mesh, "pipeline") > 1:
        from scalewise.frameworks.torch.parallel.pipeline import pipelined, stages

        parts = stages(task.model, mesh, spec)
    for part in parts:
        if size(mesh, "tensor") > 1:
            from scalewise.frameworks.torch.parallel.tensor import split

            split(part, mesh["tensor"])
        recompute(part, spec)
        compile_model(part, spec)
    shared = [share(part) for part in parts]
    parameters = [each for part in parts for each in part.parameters()]
    optimizer = (learn or learner)(task, parameters)
    if size(mesh, "pipeline") > 1:
        return pipelined(task, parts, shared, optimizer, mesh["pipeline"], spec)
    return Parallel(parts[0], optimizer, whole_step(task, shared[0]))


def learner(task: Task, parameters: Iterable[Tensor]) -> Optimizer:
    """Return the run's optimizer; tensors of one layout go together, others cannot."""
    groups: dict[Any, list[Tensor]] = {}
    for each in parameters:
        groups.setdefault(getattr(each, "device_mesh", None), []).append(each)
    return task.optimizer([{"params": group} for group in groups.values()])
