"""One micro-step of a model without pipeline stages."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from scalewise.frameworks.torch.task import ForwardBackward, Task
from scalewise.probe import Laps, Unwatched
from scalewise.probe.torch.last_gradient import LastGradient


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


def no_sync(model: Any) -> AbstractContextManager[None]:
    """Accumulate gradients without exchanging them."""
    if isinstance(model, DistributedDataParallel):
        return model.no_sync()
    return _no_fsdp_sync(model) if hasattr(model, "set_requires_gradient_sync") else nullcontext()


@contextmanager
def _no_fsdp_sync(model: Any) -> Iterator[None]:
    model.set_requires_gradient_sync(False)
    yield
    model.set_requires_gradient_sync(True)
