"""Make a model parallel: cut it into pipeline stages, split layers, then distribute them."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from scalewise.frameworks.torch.models.block_compile import (
    apply_activation_checkpointing,
    compile_model,
)
from scalewise.frameworks.torch.parallel.mesh import axis_size
from scalewise.frameworks.torch.task import ForwardBackward, Parallel, Task
from scalewise.probe import Laps, Unwatched
from scalewise.probe.torch.last_gradient import LastGradient
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
    """Return the task made parallel; ``distribute`` makes a model or stage a replica or shard."""
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


class BackwardSync:
    """Splits a backward of DDP where computation ends and only the all-reduce remains."""

    def __init__(self, model: nn.Module) -> None:
        self.lap: Callable[[str], None] = Unwatched().lap
        self._began = False
        is_ddp = isinstance(model, DistributedDataParallel)
        self._last_gradient = LastGradient(model, self._begin) if is_ddp else None

    def _begin(self, *gradients: Tensor) -> None:
        self._began = True
        self.lap("backward")

    def began(self) -> bool:
        """Return, after a backward, whether it ended with waiting for the all-reduce."""
        began, self._began = self._began, False
        if self._last_gradient and not began:
            self._last_gradient.miss()
        return began


def single_stage_step(task: Task, model: nn.Module) -> ForwardBackward:
    """Return forward and backward of a model that this rank calls as a whole."""
    sync_wait = BackwardSync(model)

    def forward_backward(
        inputs: Tensor, labels: Tensor, weight: float, probe: Laps, *, sync: bool
    ) -> Tensor:
        if not sync:
            with no_sync(model):
                return forward_backward(inputs, labels, weight, probe, sync=True)
        _, loss = task.forward(model, inputs, labels)
        if weight != 1.0:
            loss = loss * weight
        probe.lap("forward")
        sync_wait.lap = probe.lap
        loss.backward()  # type: ignore[no-untyped-call]  # PyTorch's.
        probe.lap("sync" if sync_wait.began() else "backward")
        return loss.detach()

    return forward_backward


@contextmanager
def no_sync(model: Any) -> Iterator[None]:
    """Accumulate gradients without exchanging them."""
    if isinstance(model, DistributedDataParallel):
        with model.no_sync():
            yield
    elif hasattr(model, "set_requires_gradient_sync"):  # FSDP's.
        model.set_requires_gradient_sync(False)
        yield
        model.set_requires_gradient_sync(True)
    else:
        yield
