"""Horovod's all-reduce: gradients are averaged one by one, as backward produces them.

Lap ``sync`` is the part of the exchange that backward does not hide. Horovod bypasses PyTorch's
collectives, so its bytes are not counted; losses and validation use PyTorch's process group.
With Adasum each rank updates its weights during backward; waiting has no lap of its own.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer

from scalewise.errors import PluginError
from scalewise.frameworks.torch.models.block_compile import apply_activation_checkpointing
from scalewise.frameworks.torch.parallel.assemble import single_stage_step
from scalewise.frameworks.torch.task import Parallel, Task
from scalewise.probe import Laps
from scalewise.spec import RunSpec
from scalewise.validate import check_choice, check_integer, check_positive, check_type

MPI_VARIABLES = {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "mpi"}
"""For Adasum, which needs MPI; mpirun then connects the ranks."""
COMPRESSIONS = ("none", "fp16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Horovod's settings; None means Horovod's default."""

    compression: str = "none"
    """How gradients are compressed for the exchange."""
    fusion_threshold: float | None = None
    """Maximum MiB of gradients that are exchanged at once."""
    autotune: bool = False
    """Whether Horovod tunes its settings during the training."""
    adasum: bool = False
    """Whether to combine the ranks' updates by Adasum, instead of averaging gradients."""
    min_np: int | None = None
    """The fewest ranks with which an elastic run continues; None if it is not elastic."""

    def __post_init__(self) -> None:
        check_choice("compression", self.compression, COMPRESSIONS)
        if self.fusion_threshold is not None:
            check_positive("fusion_threshold", self.fusion_threshold, example=64)
        for name in ("autotune", "adasum"):
            check_type(name, getattr(self, name), bool, "true or false")
        if self.min_np is not None:
            check_integer("min_np", self.min_np, minimum=1)

    def variables(self) -> Mapping[str, str]:
        """Return the environment variables that Horovod reads when it starts.

        >>> Settings(fusion_threshold=2, autotune=True).variables()
        {'HOROVOD_FUSION_THRESHOLD': '2097152', 'HOROVOD_AUTOTUNE': '1'}
        """
        result = {}
        if self.fusion_threshold is not None:
            result["HOROVOD_FUSION_THRESHOLD"] = str(int(self.fusion_threshold * 2**20))
        if self.autotune:
            result["HOROVOD_AUTOTUNE"] = "1"
        return result


DEFAULT_SETTINGS = Settings()


def parallelize(
    task: Task, mesh: DeviceMesh, spec: RunSpec, *, settings: Settings = DEFAULT_SETTINGS
) -> Parallel:
    """Replicate the model; Horovod's optimizer averages the gradients of the replicas."""
    apply_activation_checkpointing(task.model, spec)
    adasum = settings.adasum and mesh.size() > 1
    hvd = _initialize(settings, adasum=adasum)
    hvd.broadcast_parameters(task.model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        task.optimizer(task.model.parameters()),
        named_parameters=task.model.named_parameters(),
        compression=getattr(hvd.Compression, settings.compression),
        backward_passes_per_step=spec.accumulate,
        op=hvd.Adasum if adasum else hvd.Average,
    )
    micro_step = single_stage_step(task, task.model)

    def forward_backward(
        inputs: Tensor, labels: Tensor, weight: float, probe: Laps, *, sync: bool
    ) -> Tensor:
        # ``sync`` has no effect here: Horovod itself counts micro-steps up to the exchange.
        loss = micro_step(inputs, labels, weight, probe, sync=True)
        if sync and not adasum:
            optimizer.synchronize()
            if mesh.size() > 1:
                probe.lap("sync")
        return loss

    step_optimizer = cast(Optimizer, optimizer if adasum else SynchronizedOptimizer(optimizer))
    return Parallel(task.model, step_optimizer, forward_backward, has_uncounted_traffic=True)


def _initialize(settings: Settings, *, adasum: bool) -> Any:
    """Return the module horovod.torch, initialized with the other ranks."""
    os.environ.update(settings.variables())
    try:
        import horovod.torch as hvd

        from scalewise.frameworks.horovod import rendezvous
    except ImportError as missing:
        raise PluginError(
            f"Horovod cannot be used with this PyTorch: {missing}",
            hint="it must be built again for each version of PyTorch: run `make horovod` in a "
            "checkout of scalewise",
        ) from missing
    if not hvd.is_initialized():
        if adasum:
            os.environ.update(MPI_VARIABLES)
        elif "HOROVOD_RANK" not in os.environ:
            os.environ.update(rendezvous.rendezvous_variables(os.environ))
        hvd.init()
    return hvd


class SynchronizedOptimizer:
    """Horovod's optimizer, whose step finds the gradients already averaged."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)

    def step(self) -> None:
        """Update the weights without another exchange."""
        with self._optimizer.skip_synchronize():
            self._optimizer.step()
