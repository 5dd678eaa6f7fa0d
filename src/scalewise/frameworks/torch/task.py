"""What a workload gives to training, and what a strategy makes of it."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from scalewise import plugins
from scalewise.errors import ScalewiseError, SpecError
from scalewise.frameworks.part_options import options_for
from scalewise.frameworks.torch import workload
from scalewise.frameworks.torch.input.batches import IGNORED_LABEL
from scalewise.frameworks.torch.parallel.gradient_exchange import GradientExchange
from scalewise.probe import Laps
from scalewise.spec import RunSpec

MOMENTUM = 0.9
BUILD_ERRORS = (TypeError, ValueError, RuntimeError, AssertionError, AttributeError, LookupError)
"""What a model may say that cannot be made as asked."""


@dataclass(frozen=True, slots=True)
class Task:
    """A model and how it learns: a class for each sample, or for each position of it."""

    model: nn.Module
    optimizer: partial[Optimizer]
    """Makes the run's optimizer of a list of parameters."""
    skips: bool = False
    """Whether labels may say that a sample does not count."""

    def loss(self, output: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of the samples that count; where none does, it is 0."""
        logits, truth = output.float().flatten(0, -2), labels.flatten()
        if not self.skips:  # Counting takes a small step's device some time.
            return cross_entropy(logits, truth)
        total = cross_entropy(logits, truth, ignore_index=IGNORED_LABEL, reduction="sum")
        return total / (truth != IGNORED_LABEL).sum().clamp(min=1)

    def forward(self, model: nn.Module, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the model's output and the mean loss."""
        output = model(inputs)
        return output, self.loss(output, labels)


class ForwardBackward(Protocol):
    """One micro-step: forward and backward, a lap each."""

    def __call__(
        self, inputs: Tensor, labels: Tensor, weight: float, probe: Laps, *, sync: bool
    ) -> Tensor:
        """Return the weighted loss; gradients are exchanged when ``sync`` says so.

        Zero on a rank that does not see the output.
        """
        ...


@dataclass(frozen=True, slots=True)
class Parallel:
    """A task made parallel."""

    model: nn.Module
    """What this rank holds of the model, under the serial model's own names."""
    optimizer: Optimizer
    forward_backward: ForwardBackward
    evaluate: Callable[[Tensor, Tensor], Tensor | None] | None = None
    """Returns the output for inputs with these labels, nothing on a rank that does not see it;
    where there is none, ``model`` itself does."""
    exchange: GradientExchange | None = None
    """What stands between replicas, where they exchange whole gradients."""
    complete: bool = False
    """Whether the optimizer's step also unscales and clips, as the step of an engine does."""
    gathered: Callable[[], AbstractContextManager[None]] = nullcontext
    """Makes ``model`` whole on every rank while it is entered."""
    unseen: bool = False
    """Whether ranks exchange past PyTorch's collectives, where nobody counts what they send."""


def build_model(spec: RunSpec, shape: tuple[int, int, int] | int, classes: int) -> nn.Module:
    """Return the run's model for images of this shape, or for so many tokens."""
    factory = workload(spec)
    try:
        model: nn.Module = factory(shape, classes, **options_for(factory, spec))
    except ScalewiseError:
        raise
    except (*BUILD_ERRORS, SystemExit) as bad:
        words = "it calls sys.exit" if isinstance(bad, SystemExit) else " ".join(str(bad).split())
        samples = f"{shape} tokens" if isinstance(shape, int) else f"images of {shape}"
        raise SpecError(
            f"{spec.workload} cannot be built for {samples} "
            f"with options {dict(spec.options)}: {words}",
            hint=_way_to_look(str(spec.workload), shape, classes),
        ) from bad
    return model


def _way_to_look(workload: str, shape: tuple[int, int, int] | int, classes: int) -> str:
    """Return how to find out why a model cannot be built.

    >>> _way_to_look("mine:net", 64, 10)
    'call it in Python to see where: from mine import net; net(64, 10)'
    """
    module, colon, name = workload.partition(":")
    if not colon or module in plugins.corner("libraries", "torch"):
        return "look at its options, and at the size of what it sees: edge, length or data"
    first = name.partition(".")[0]
    return (
        f"call it in Python to see where: from {module} import {first}; {name}({shape}, {classes})"
    )


OPTIMIZER_STEPS: dict[str, dict[str, bool]] = {
    "auto": {},
    "loop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}


def optimizer_factory(spec: RunSpec) -> partial[Optimizer]:
    """Return what makes the run's optimizer of a list of parameters."""
    kinds: dict[str, Any] = {
        "sgd": partial(torch.optim.SGD, momentum=MOMENTUM),
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
    }
    return partial(
        kinds[spec.optimizer], lr=spec.lr * spec.lr_factor, **OPTIMIZER_STEPS[spec.optimizer_step]
    )


def refuse_optimizer_step(spec: RunSpec, device: torch.device) -> None:
    """Refuse a way to do the optimizer's step that this device does not have."""
    one = nn.Parameter(torch.zeros(1, device=device))
    one.grad = torch.zeros_like(one)
    try:
        optimizer_factory(spec)([one]).step()
    except RuntimeError as bad:
        raise SpecError(
            f"{spec.optimizer} cannot do a {spec.optimizer_step} step here: {bad}",
            hint='write optimizer_step = "auto"',
        ) from bad
