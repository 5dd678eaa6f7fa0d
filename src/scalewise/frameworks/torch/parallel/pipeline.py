"""Pipeline parallelism: blocks are divided into stages, and micro-batches pass through them."""

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

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B}


def build_stages(model: nn.Module, mesh: DeviceMesh, spec: RunSpec) -> list[nn.Module]:
    """Return the ``spec.rounds`` stages of this rank, in the order in which batches pass them."""
    ranks = axis_size(mesh, "pipeline")
    assert isinstance(model, Parts)
    stage_count = ranks * spec.rounds
    indices = range(axis_rank(mesh, "pipeline"), stage_count, ranks)
    return [apply_precision(model.stage(index, stage_count), spec) for index in indices]


def pipeline_steps(
    task: Task,
    modules: Sequence[nn.Module],
    distributed: Sequence[nn.Module],
    optimizer: Optimizer,
    mesh: DeviceMesh,
    spec: RunSpec,
) -> Parallel:
    """Return the pipeline; ``distributed`` are ``modules``, this rank's stages, in DDP or FSDP."""
    stage_count, rank = mesh.size() * spec.rounds, mesh.get_local_rank()
    is_first, is_last = rank == 0, rank == mesh.size() - 1
    device = next(parameter for module in modules for parameter in module.parameters()).device
    stages = [
        PipelineStage(module, rank + n * mesh.size(), stage_count, device, group=mesh.get_group())
        for n, module in enumerate(distributed)
    ]
    loss_function = _MicroBatchLoss(task, spec.pipeline_micro_batches)
    schedule_class: Any = SCHEDULES[spec.pipeline_schedule]
    # ``scale_grads`` would also scale the gradients that earlier micro-steps have accumulated.
    schedule: Any = schedule_class(
        stages if spec.rounds > 1 else stages[0],
        spec.pipeline_micro_batches,
        loss_fn=loss_function,
        scale_grads=False,
    )

    ddp_timer = DdpSyncTimer(distributed)

    def forward_backward(
        inputs: Tensor, labels: Tensor, weight: float, probe: Laps, *, sync: bool
    ) -> Tensor:
        # ``sync`` is not used: PyTorch's stages exchange gradients in every ``schedule.step``.
        ddp_timer.laps = probe
        losses: list[Tensor] = []
        loss_function.weight = weight
        last_stage_args = {"target": labels, "losses": losses} if is_last else {}
        schedule.step(*([inputs] if is_first else []), **last_stage_args, return_outputs=False)
        probe.lap("pipeline")
        return torch.stack(losses).sum().detach() if losses else torch.zeros((), device=device)

    def evaluate(inputs: Tensor, labels: Tensor) -> Tensor | None:
        last_stage_args = {"target": labels, "losses": []} if is_last else {}
        output: Tensor | None = schedule.eval(*([inputs] if is_first else []), **last_stage_args)
        return output if is_last else None

    model = modules[0] if len(modules) == 1 else nn.ModuleList(modules)
    return Parallel(model, optimizer, forward_backward, evaluate)


class _MicroBatchLoss:
    """Computes what a micro-batch adds to the loss of its batch, times the batch's weight."""

    def __init__(self, task: Task, count: int) -> None:
        self._task, self._count, self.weight = task, count, 1.0

    def __call__(self, output: Tensor, labels: Tensor) -> Tensor:
        return self._task.loss(output, labels) * (self.weight / self._count)
