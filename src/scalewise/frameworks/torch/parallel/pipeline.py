"""Pipeline parallelism: the blocks are dealt out to stages, and small batches pass through them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)
from torch.optim import Optimizer

from scalewise.frameworks.torch.models.parts import Parts
from scalewise.frameworks.torch.parallel.mesh import axis_rank, axis_size
from scalewise.frameworks.torch.precision import apply_precision
from scalewise.frameworks.torch.task import Parallel, Task
from scalewise.probe import Laps
from scalewise.probe.torch.sync_timer import DdpSyncTimer
from scalewise.spec import RunSpec

SCHEDULES = {
    "gpipe": ScheduleGPipe,
    "1f1b": Schedule1F1B,
    "interleaved": ScheduleInterleaved1F1B,
}


def build_stages(model: nn.Module, mesh: DeviceMesh, spec: RunSpec) -> list[nn.Module]:
    """Return the stages of this rank, in their order."""
    devices = axis_size(mesh, "pipeline")
    assert isinstance(model, Parts)
    count = devices * spec.rounds
    mine = range(axis_rank(mesh, "pipeline"), count, devices)
    return [apply_precision(model.stage(number, count), spec) for number in mine]


def pipeline_steps(
    task: Task,
    parts: Sequence[nn.Module],
    wrapped: Sequence[nn.Module],
    optimizer: Optimizer,
    mesh: DeviceMesh,
    spec: RunSpec,
) -> Parallel:
    """Return the steps of a model whose stages lie one behind the other along ``mesh``."""
    count, here = mesh.size() * spec.rounds, mesh.get_local_rank()
    first, last = here == 0, here == mesh.size() - 1
    device = next(each for part in parts for each in part.parameters()).device
    placed = [
        PipelineStage(module, here + n * mesh.size(), count, device, group=mesh.get_group())
        for n, module in enumerate(wrapped)
    ]
    weighted = _Weighted(task, spec.pipeline_micro_batches)
    kind: Any = SCHEDULES[spec.pipeline_schedule]
    whole: Any = placed if spec.rounds > 1 else placed[0]
    # Left to itself it would scale the gradients, also those of micro-steps before.
    schedule: Any = kind(whole, spec.pipeline_micro_batches, loss_fn=weighted, scale_grads=False)

    ddp_timer = DdpSyncTimer(wrapped)

    def forward_backward(
        inputs: Tensor, labels: Tensor, weight: float, probe: Laps, *, sync: bool
    ) -> Tensor:
        ddp_timer.laps = probe
        losses: list[Tensor] = []
        weighted.weight = weight
        given = (inputs,) if first else ()
        schedule.step(
            *given, target=labels if last else None, losses=losses if last else None,
            return_outputs=False,
        )  # fmt: skip
        probe.lap("pipeline")
        return torch.stack(losses).sum().detach() if losses else torch.zeros((), device=device)

    def evaluate(inputs: Tensor, labels: Tensor) -> Tensor | None:
        given = (inputs,) if first else ()
        output: Tensor | None = schedule.eval(
            *given, target=labels if last else None, losses=[] if last else None
        )
        return output if last else None

    held = parts[0] if len(parts) == 1 else nn.ModuleList(parts)
    return Parallel(held, optimizer, forward_backward, evaluate)


class _Weighted:
    """The part of a small batch in the loss of its batch, times what that weighs."""

    def __init__(self, task: Task, count: int) -> None:
        self._task, self._count, self.weight = task, count, 1.0

    def __call__(self, output: Tensor, labels: Tensor) -> Tensor:
        return self._task.loss(output, labels) * (self.weight / self._count)
