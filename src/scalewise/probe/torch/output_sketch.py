"""Sketches of what layers return in the first step: they show in which layer a difference begins.

Outputs are added up over samples and tokens, so that neither the order of samples nor micro-batches
matter, and the sums of data-parallel ranks add up to that of one device.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from scalewise.probe.torch.certificate_mode import plain_modules
from scalewise.probe.torch.sketch import Sketcher


class OutputSketches:
    """Hooks on the modules of a model that have parameters; ``end`` returns what they saw."""

    def __init__(self, is_left_out: Callable[[], bool]) -> None:
        self._is_left_out = is_left_out
        """Whether a call is not counted, as in a backward, where checkpointing repeats it."""
        self._handles: list[Any] = []
        self._sums: dict[tuple[str, int], Tensor] = {}
        """By the layer's name and its features, in the order of the first calls."""

    def add(self, model: nn.Module) -> None:
        """Watch a model's layers, unless it is compiled: hooks would compile it again."""
        modules = [*plain_modules(model)]
        if any(_is_compiled(module) for _, module in modules):
            return
        for prefix, module in modules:
            if module._parameters:
                self._handles.append(module.register_forward_hook(self._hook(prefix)))

    def _hook(self, prefix: str) -> Callable[[nn.Module, Any, Any], None]:
        def add_output(module: nn.Module, inputs: Any, output: Any) -> None:
            if torch.compiler.is_compiling() or not torch.is_grad_enabled():
                return
            is_plain = type(output) is Tensor and output.ndim > 1 and output.is_floating_point()
            if not is_plain or self._is_left_out():
                return
            features = output.shape[-1]
            with suppress(RuntimeError):  # Inside ``vmap``.
                total = output.detach().reshape(-1, features).float().sum(0).cpu().double()
                before = self._sums.get((prefix, features))
                self._sums[prefix, features] = total if before is None else before + total

        return add_output

    def end(self) -> dict[str, Any]:
        """Remove the hooks, and return the sketches, by the layer's name and features."""
        for handle in self._handles:
            handle.remove()
        # The signs are those of the layer's bias: what the bias adds is a multiple of its sketch.
        return {
            f"{prefix.rstrip('.')} {features}": _sketch(f"{prefix}bias", total)
            for (prefix, features), total in self._sums.items()
        }


def _sketch(name: str, vector: Tensor) -> dict[str, Any]:
    sketcher = Sketcher({name: vector})
    return sketcher.sketch(sketcher.elements([vector]))[name]


def _is_compiled(module: nn.Module) -> bool:
    is_scripted = isinstance(module, torch.jit.ScriptModule)
    has_compiled_call = getattr(module, "_compiled_call_impl", None) is not None
    return is_scripted or has_compiled_call or hasattr(module, "_orig_mod")
