"""Make a model parallel: cut it into pipeline stages, split their layers, replicate or shard."""

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
"""Builds the task's optimizer for these parameters, which are this rank's."""


def assemble(
    task: Task,
    mesh: DeviceMesh,
    spec: RunSpec,
    distribute: Callable[[nn.Module], nn.Module],
    make_optimizer: OptimizerFactory | None = None,
) -> Parallel:
    """Return the parallel task; ``distribute`` replicates or shards a stage or an uncut model."""
    # Imported only if needed: PyTorch's pipeline and tensor parallelism take a second to import.
    stages = [task.model]
    if axis_size(mesh, "pipeline") > 1:
        from scalewise.frameworks.torch.parallel.pipeline import build_stages, pipeline_steps

        stages = build_stages(task.model, mesh, spec)
    for stage in stages:
        if axis_size(mesh, "tensor") > 1:
            from scalewise.frameworks.torch.parallel.tensor import split_blocks

            split_blocks(stage, mesh["tensor"])
        apply_activation_checkpointing(stage, spec)
        compile_model(stage, spec)
    distributed = [distribute(stage) for stage in stages]
    parameters = [parameter for stage in stages for parameter in stage.parameters()]
    optimizer = (make_optimizer or build_optimizer)(task, parameters)
    if axis_size(mesh, "pipeline") > 1:
        return pipeline_steps(task, stages, distributed, optimizer, mesh["pipeline"], spec)
    return Parallel(stages[0], optimizer, single_stage_step(task, distributed[0]))


def build_optimizer(task: Task, parameters: Iterable[Tensor]) -> Optimizer:
    """Return the task's optimizer; a group of its parameters cannot mix device meshes."""
    groups: dict[Any, list[Tensor]] = {}
    for parameter in parameters:
        groups.setdefault(getattr(parameter, "device_mesh", None), []).append(parameter)
    return task.optimizer([{"params": group} for group in groups.values()])


class BackwardSync:
    """Times DDP's backward as two laps: ``backward``, and ``sync`` after the last gradient."""

    def __init__(self, model: nn.Module) -> None:
        self.lap: Callable[[str], None] = Unwatched().lap
        self._sync_began = False
        is_ddp = isinstance(model, DistributedDataParallel)
        self._last_gradient = LastGradient(model, self._on_last_gradient) if is_ddp else None

    def _on_last_gradient(self, *gradients: Tensor) -> None:
        self._sync_began = True
        self.lap("backward")

    def end_backward(self) -> str:
        """Return the name of a backward's last lap: ``sync`` if its last gradient was noticed."""
        sync_began, self._sync_began = self._sync_began, False
        if self._last_gradient and not sync_began:
            self._last_gradient.miss()
        return "sync" if sync_began else "backward"


def single_stage_step(task: Task, model: nn.Module) -> ForwardBackward:
    """Return the micro-step of a model that is not cut into pipeline stages."""
    backward_sync = BackwardSync(model)

    def forward_backward(
        inputs: Tensor, labels: Tensor, weight: float, probe: Laps, *, sync: bool
    ) -> Tensor:
        if not sync:
            with no_sync(model):  # It prevents the exchange; ``sync=True`` skips this branch.
                return forward_backward(inputs, labels, weight, probe, sync=True)
        _, loss = task.forward(model, inputs, labels)
        if weight != 1.0:
            loss = loss * weight
        probe.lap("forward")
        backward_sync.lap = probe.lap
        loss.backward()  # type: ignore[no-untyped-call]  # PyTorch's.
        probe.lap(backward_sync.end_backward())
        return loss.detach()

    return forward_backward


@contextmanager
def no_sync(model: Any) -> Iterator[None]:
    """Let DDP or FSDP accumulate gradients without exchanging them, inside the context."""
    if isinstance(model, DistributedDataParallel):
        with model.no_sync():
            yield
    elif hasattr(model, "set_requires_gradient_sync"):  # FSDP's.
        model.set_requires_gradient_sync(False)
        yield
        model.set_requires_gradient_sync(True)
    else:
        yield
