"""Horovod's all-reduce: gradients are averaged one by one, as backward brings them.

What is left of the exchange when backward ends is waited for, and told as ``sync``. Horovod
exchanges in a thread of its own and past PyTorch's collectives, so that its bytes are not counted.
PyTorch's ranks meet as well, beside Horovod's: losses and validation are put together there.

With Adasum each rank does its own step as backward brings the gradients, and the changes that
these make are put together: the optimizer waits for that, and it is not told apart.
"""

import os
from typing import Any, cast

from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer

from scalewise.errors import PluginError
from scalewise.frameworks.horovod.exchange_options import AS_HOROVOD_DOES, Settings
from scalewise.frameworks.torch.models.block_compile import apply_activation_checkpointing
from scalewise.frameworks.torch.task import Parallel, Task
from scalewise.probe import Laps
from scalewise.spec import RunSpec

OVER_MPI = {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "mpi"}
"""Adasum is written for MPI alone; mpirun has told it all places."""


def parallelize(
    task: Task, mesh: DeviceMesh, spec: RunSpec, *, settings: Settings = AS_HOROVOD_DOES
) -> Parallel:
    """Replicate the model; Horovod's optimizer averages the gradients of the replicas."""
    apply_activation_checkpointing(task.model, spec)
    adasum = settings.adasum and mesh.size() > 1
    hvd = _joined(settings, adasum=adasum)
    hvd.broadcast_parameters(task.model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        task.optimizer(task.model.parameters()),
        named_parameters=task.model.named_parameters(),
        compression=getattr(hvd.Compression, settings.compression),
        backward_passes_per_step=spec.accumulate,
        op=hvd.Adasum if adasum else hvd.Average,
    )

    def forward_backward(
        inputs: Tensor, labels: Tensor, weight: float, probe: Laps, *, sync: bool
    ) -> Tensor:
        _, loss = task.forward(task.model, inputs, labels)
        if weight != 1.0:
            loss = loss * weight
        probe.lap("forward")
        loss.backward()  # type: ignore[no-untyped-call]  # PyTorch's.
        probe.lap("backward")
        if sync and not adasum:
            optimizer.synchronize()
            if mesh.size() > 1:
                probe.lap("sync")
        return loss.detach()

    learner = cast(Optimizer, optimizer if adasum else Synchronized(optimizer))
    return Parallel(task.model, learner, forward_backward, unseen=True)


def _joined(settings: Settings, *, adasum: bool) -> Any:
    """Return Horovod, joined with the other ranks."""
    os.environ.update(settings.variables())
    try:
        import horovod.torch as hvd

        from scalewise.frameworks.horovod import rendezvous
    except ImportError as missing:
        raise PluginError(
            f"Horovod cannot be used with this PyTorch: {missing}",
            hint="it must be built anew for each version of PyTorch: make horovod, in a "
            "checkout of scalewise, does",
        ) from missing
    if not hvd.is_initialized():
        if adasum:
            os.environ.update(OVER_MPI)
        elif "HOROVOD_RANK" not in os.environ:
            os.environ.update(rendezvous.told(os.environ))
        hvd.init()
    return hvd


class Synchronized:
    """Horovod's optimizer, whose gradients were put together before its step."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)

    def step(self) -> None:
        """Update the weights without another exchange."""
        with self._optimizer.skip_synchronize():
            self._optimizer.step()

    def zero_grad(self) -> None:
        """Let the gradients go."""
        self._optimizer.zero_grad()
