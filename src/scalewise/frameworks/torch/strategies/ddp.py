"""Data parallelism: every rank holds the model, gradients are averaged."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from scalewise.frameworks.torch.gradients import LastGradient
from scalewise.frameworks.torch.task import Parallel, Task
from scalewise.probe import Laps, Unwatched
from scalewise.spec import RunSpec


class Waiting:
    """Splits a backward where its computing ends and it only waits for the others' gradients."""

    def __init__(self, model: nn.Module) -> None:
        self.tell: Callable[[str], None] = Unwatched().lap
        self._began = False
        wrapped = isinstance(model, DistributedDataParallel)
        self._last = LastGradient(model, self._begin) if wrapped else None

    def _begin(self, *gradients: Tensor) -> None:
        self._began = True
        self.tell("backward")

    def began(self) -> bool:
        """Say, after a backward, whether its end was waiting."""
        began, self._began = self._began, False
        if self._last and not began:
            self._last.miss()
        return began


def parallelize(task: Task, mesh: DeviceMesh, spec: RunSpec) -> Parallel:
    """Replicate the model and overlap the gradient all-reduce with backward."""
    model: nn.Module = task.model
    if mesh.size() > 1:
        # One replica has nobody to talk to: wrapped, the baseline would be slower
        # and every other scale would look better than it is.
        model = DistributedDataParallel(
            model, process_group=mesh.get_group(), gradient_as_bucket_view=True
        )

    waiting = Waiting(model)

    def unsynced() -> AbstractContextManager[None]:
        return model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext()

    def forward_backward(
        images: Tensor, labels: Tensor, weight: float, probe: Laps, *, sync: bool
    ) -> Tensor:
        if not sync:
            with unsynced():
                return forward_backward(images, labels, weight, probe, sync=True)
        _, loss = task.forward(model, images, labels)
        if weight != 1.0:
            loss = loss * weight
        probe.lap("forward")
        waiting.tell = probe.lap
        loss.backward()  # type: ignore[no-untyped-call]
        probe.lap("sync" if waiting.began() else "backward")
        return loss.detach()

    return Parallel(model, task.optimizer(model.parameters()), forward_backward)
