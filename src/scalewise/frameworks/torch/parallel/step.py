"""One micro-step of a model that is whole on this rank, whoever it is shared with."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from scalewise.frameworks.torch.task import ForwardBackward, Task
from scalewise.probe import Laps, Unwatched
from scalewise.probe.torch.last_gradient import LastGradient


class BackwardSync:
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


def single_stage_step(task: Task, model: nn.Module) -> ForwardBackward:
    """Return forward and backward of a model that this rank calls as if it were alone."""
    waiting = BackwardSync(model)

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
        waiting.tell = probe.lap
        loss.backward()  # type: ignore[no-untyped-call]  # PyTorch's.
        probe.lap("sync" if waiting.began() else "backward")
        return loss.detach()

    return forward_backward


def no_sync(model: Any) -> AbstractContextManager[None]:
    """Let gradients pile up without being exchanged."""
    if isinstance(model, DistributedDataParallel):
        return model.no_sync()
    return _kept_apart(model) if hasattr(model, "set_requires_gradient_sync") else nullcontext()


@contextmanager
def _kept_apart(model: Any) -> Iterator[None]:
    model.set_requires_gradient_sync(False)
    yield
    model.set_requires_gradient_sync(True)
