"""Certificate mode: train so that runs on 1 and N devices can be compared, and record sketches.

For watched programs and built-in workloads alike: one seed, no dropout, names of layers without
wrappers, and sketches before and after chosen optimizer steps. Nothing else changes the numbers.
"""

import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from scalewise.probe.torch.sketch import Sketcher, is_sketched, total_length
from scalewise.probe.torch.sync_timer import Patch

WRAPPED_CHILDREN = (
    "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module",
)  # fmt: skip
"""Names under which wrappers hold the wrapped module; they are left out of layers' names."""
DROP_PATHS = {"DropPath": "drop_prob", "StochasticDepth": "p"}
"""Classes of timm and torchvision that leave out whole layers at random, and their probability."""

Note = Callable[..., None]
"""Writes one line of facts to the rank file."""


def seed_everything(seed: int) -> None:
    """Seed Python's, PyTorch's and, if it is imported, NumPy's random numbers."""
    random.seed(seed)
    torch.manual_seed(seed)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)


def dropout_patches() -> list[Patch]:
    """Return patches of PyTorch's functions that make every dropout do nothing."""

    # Signatures are PyTorch's, so that a model that uses these can still be scripted.
    def dropout(
        input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        return input

    attention: Any = functional.scaled_dot_product_attention

    def scaled_dot_product_attention(*args: Any, **kwargs: Any) -> Tensor:
        if len(args) > 4:  # The fifth argument is the probability of dropout.
            args = (*args[:4], 0.0, *args[5:])
        else:
            kwargs["dropout_p"] = 0.0
        result: Tensor = attention(*args, **kwargs)
        return result

    names = (
        "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout",
    )  # fmt: skip
    patches: list[Patch] = [
        (functional, name, getattr(functional, name), dropout) for name in names
    ]
    return [*patches, (functional, attention.__name__, attention, scaled_dot_product_attention)]


def loss_patches(count_targets: Callable[[Tensor, int], None]) -> list[Patch]:
    """Return patches of PyTorch's losses over classes that first pass the targets, and the index of
    those to ignore, to ``count_targets``.
    """
    original, original_nll = functional.cross_entropy, functional.nll_loss

    def count(target: Tensor, ignored: int) -> None:
        if not torch.compiler.is_compiling():
            count_targets(target, ignored)

    # Signatures are PyTorch's, so that a model that uses these can still be scripted.
    def cross_entropy(  # noqa: PLR0913 - those of PyTorch
        input: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> Tensor:
        if not torch.jit.is_scripting():  # type: ignore[attr-defined]
            count(target, ignore_index)
        return original(
            input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing
        )

    def nll_loss(
        input: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> Tensor:
        if not torch.jit.is_scripting():  # type: ignore[attr-defined]
            count(target, ignore_index)
        return original_nll(input, target, weight, size_average, ignore_index, reduce, reduction)

    return [
        (functional, "cross_entropy", original, cross_entropy),
        (functional, "nll_loss", original_nll, nll_loss),
    ]


def switch_dropout_off(model: nn.Module) -> int:
    """Set the probabilities of a model's random layers to 0; return how many were above it.

    ``dropout_patches`` do this for functions; modules of RNNs and of some libraries call others.
    """
    count = 0
    for module in model.modules():
        name = DROP_PATHS.get(type(module).__name__, "p" if isinstance(module, _DropoutNd) else "")
        if isinstance(module, (nn.RNNBase, nn.MultiheadAttention)):
            name = "dropout"
        if name and (getattr(module, name, None) or 0.0) > 0.0:
            setattr(module, name, 0.0)
            count += 1
    return count


def plain_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield a model's modules with a prefix for their parameters' names, without wrappers' names.

    >>> [name for name, _ in plain_modules(nn.DataParallel(nn.Sequential(nn.Linear(1, 1))))]
    ['', '', '0.']
    """
    visited: set[int] = set()

    def walk(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
        if id(module) in visited:
            return
        visited.add(id(module))
        yield prefix, module
        for name, child in module.named_children():
            yield from walk(child, prefix if _wraps(module, name) else f"{prefix}{name}.")

    yield from walk(model, "")


def _wraps(module: nn.Module, child: str) -> bool:
    """Return whether a module only wraps this child."""
    if child in WRAPPED_CHILDREN:
        return True
    alone = len(module._modules) == 1 and not module._parameters and not module._buffers
    wrapper = isinstance(module, (nn.parallel.DistributedDataParallel, nn.DataParallel))
    return child == "module" and (alone or wrapper)


def parameter_names(models: Iterable[nn.Module]) -> dict[int, str]:
    """Return the plain name of each parameter of some models, by the parameter's id.

    A parameter of several models has its name in the model with the most parameters.
    """
    named = []
    for model in models:
        names: dict[int, str] = {}
        for prefix, module in plain_modules(model):
            for name, parameter in module.named_parameters(recurse=False):
                names.setdefault(id(parameter), prefix + name)
        named.append(names)
    chosen: dict[int, str] = {}
    for names in sorted(named, key=lambda names: (-len(names), sorted(names.values()))):
        for parameter_id, name in names.items():
            chosen.setdefault(parameter_id, name)
    return chosen


def buffers_of(models: Iterable[nn.Module]) -> dict[str, Tensor]:
    """Return the floating-point buffers of some models by plain name."""
    buffers: dict[str, Tensor] = {}
    for model in models:
        for prefix, module in plain_modules(model):
            for name, buffer in module.named_buffers(recurse=False):
                if buffer is not None and buffer.is_floating_point() and buffer.numel():
                    buffers.setdefault(prefix + name, buffer)
    return buffers


def own_batch_norms(models: Iterable[nn.Module]) -> list[str]:
    """Return the names of batch normalization layers that use only the samples of their rank."""
    names = [
        prefix.rstrip(".")
        for model in models
        for prefix, module in plain_modules(model)
        if isinstance(module, _BatchNorm)
        and not isinstance(module, nn.SyncBatchNorm)
        and module.training
    ]
    return [*dict.fromkeys(names)]


class OptimizerSketches:
    """Writes the sketches of the parameters that one optimizer updates."""

    def __init__(
        self,
        named: Mapping[str, Tensor],
        note: Note,
        find_buffers: Callable[[], Mapping[str, Tensor]],
        last_step: int | None = None,
    ) -> None:
        self.parameters = tuple(named.values())
        self.step = -1
        """The step that runs, or ran last; counted from 0."""
        self._sketcher: Sketcher | None = None
        self._named, self._note, self._find_buffers = named, note, find_buffers
        self._last_step = last_step
        """The last step of the run that is sketched; None if unknown."""
        self._before: Tensor | None = None

    @property
    def next_is_sketched(self) -> bool:
        return is_sketched(self.step + 1)

    def begin_step(self, *, with_gradients: bool = True, divisor: Any = None) -> None:
        """Sketch the gradients before an update; divide them by ``divisor``, if given."""
        self.step += 1
        if not is_sketched(self.step):
            return
        if self._sketcher is None:
            self._sketcher = Sketcher(self._named)
        self._before = self._sketcher.elements(self.parameters)
        if self.step == 0 or is_sketched(self.step - 1):
            self._write("weight", self._sketcher.sketch(self._before))
        gradients = [parameter.grad for parameter in self.parameters]
        present = [gradient is not None for gradient in gradients]
        if with_gradients and any(present):
            elements = self._sketcher.elements(gradients)
            length = total_length([gradient for gradient in gradients if gradient is not None])
            if length is not None and divisor is not None:
                length /= float(divisor)
            self._write("gradient", self._sketcher.sketch(elements, present, divisor), length)

    def end_step(self) -> bool:
        """Sketch the update, and maybe the buffers; return whether the step was sketched."""
        if self._before is None or self._sketcher is None:
            return False
        after = self._sketcher.elements(self.parameters)
        self._write("update", self._sketcher.sketch(after.double() - self._before.double()))
        self._before = None
        if self._last_step is None or self.step == self._last_step:
            buffers = self._find_buffers()
            if buffers:
                sketcher = Sketcher(buffers)
                elements = sketcher.elements([*buffers.values()])
                self._write("buffer", sketcher.sketch(elements))
        return True

    def _write(self, kind: str, layers: Mapping[str, Any], length: float | None = None) -> None:
        known = {} if length is None else {"length": length}
        self._note(sketch={"step": self.step, "kind": kind, "layers": layers, **known})


def last_sketched(steps: int | None) -> int | None:
    """Return the last sketched step of a run of so many steps; None if their number is unknown.

    >>> last_sketched(24), last_sketched(5), last_sketched(None)
    (20, 2, None)
    """
    if not steps:
        return None
    return next(step for step in reversed(range(steps)) if is_sketched(step))
