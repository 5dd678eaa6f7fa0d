"""Count the collectives and bytes of one early step of this rank.

That step runs under a dispatch mode, which sees all collectives, even those of DDP's reducer and
of DTensors. This slows the step, so the steps that count for timing begin later. Sent bytes are
those of a ring algorithm: each of n ranks sends 2 (n - 1)/n of the payload of an all-reduce, and
(n - 1)/n of the payload of other collectives.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from scalewise.spec import RunSpec

COUNTED_STEP = 2
"""The index of the counted step. The first steps also do one-time setup, so they do not count."""
NAMESPACES = ("c10d", "_c10d_functional", "c10d_functional", "_dtensor")
KINDS = {
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "broadcast": "broadcast",
    "alltoall": "all-to-all",
    "sharddimalltoall": "all-to-all",
    "send": "point-to-point",
}
IGNORED_OPERATORS = ("recv", "wait", "wrap", "barrier", "monitoredbarrier")
"""Operators that send no data. What ``recv`` receives, the sender counts."""


class CollectiveCounter:
    """Context manager around every step of a session; counts the collectives of one step."""

    def __init__(self, spec: RunSpec) -> None:
        self._has_one_device = spec.topology.world == 1
        self._is_compiled = bool(spec.compile)
        self._step = 0
        self._contexts = ExitStack()
        self.counts: dict[str, Any] | None = {"exchanged": {}} if self._has_one_device else None
        """The counted step, and calls, payload bytes and sent bytes by kind; None if unknown."""
        self._tally: Tally | None = None

    def __enter__(self) -> None:
        if self._step != COUNTED_STEP or self._has_one_device:
            return
        if self._is_compiled:
            if not hasattr(torch.compiler, "set_stance"):  # Before version 2.6.
                return
            # The compiler would never compile a function first called under a dispatch mode.
            self._contexts.enter_context(torch.compiler.set_stance("force_eager"))
        self._tally = self._contexts.enter_context(Tally())

    def __exit__(self, *error: Any) -> None:
        self._step += 1
        self._contexts.close()
        if self._tally and self._tally.is_complete:
            self.counts = {"step": COUNTED_STEP, "exchanged": self._tally.kinds}
        self._tally = None


class Tally(TorchDispatchMode):  # type: ignore[no-untyped-call]  # PyTorch's.
    """Counts calls, payload bytes and sent bytes by kind of collective while it is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # PyTorch's.
        self.kinds: dict[str, dict[str, int]] = {}
        self.is_complete = True
        """False after a collective whose kind or size could not be determined."""

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # A DTensor then dispatches its collectives on plain tensors.
        result = operator(*args, **(kwargs or {}))
        if hasattr(operator, "_schema"):
            self._add_call(operator, [*args, *(kwargs or {}).values()], result)
        return result

    def _add_call(self, operator: Any, arguments: list[Any], result: Any) -> None:
        """Count one call of an operator; an unknown collective makes the tally incomplete."""
        namespace, _, name = operator._schema.name.partition("::")
        bare_name = name.replace("_", "")
        if namespace not in NAMESPACES or bare_name.startswith(IGNORED_OPERATORS):
            return
        try:
            kind = next(kind for prefix, kind in KINDS.items() if bare_name.startswith(prefix))
            payload_bytes = max(  # The full buffer, which is an argument or the result.
                sum(tensor.numel() * tensor.element_size() for tensor in _tensors(value))
                for value in [*arguments, result]
            )
            sent = sent_bytes(kind, payload_bytes, _group_size(arguments))
        except Exception:
            self.is_complete = False
            return
        counts = self.kinds.setdefault(kind, {"calls": 0, "bytes": 0, "sent": 0})
        counts["calls"] += 1
        counts["bytes"] += payload_bytes
        counts["sent"] += sent


def sent_bytes(kind: str, payload_bytes: int, ranks: int) -> int:
    """Return the bytes that each rank sends in a ring algorithm.

    >>> [sent_bytes(kind, 100, 4) for kind in ("all-reduce", "all-gather", "point-to-point")]
    [150, 75, 100]
    """
    if kind == "point-to-point":
        return payload_bytes
    return (2 if kind == "all-reduce" else 1) * payload_bytes * (ranks - 1) // ranks


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for element in value:
            yield from _tensors(element)


def _group_size(arguments: list[Any]) -> int:
    """Return the number of ranks in the process group among an operator's arguments."""
    for argument in reversed(arguments):
        if isinstance(argument, str):
            c10d: Any = dist.distributed_c10d
            return int(c10d._resolve_process_group(argument).size())
        if isinstance(argument, dist.ProcessGroup):
            return int(argument.size())
        if isinstance(argument, torch.ScriptObject) and "ProcessGroup" in str(argument._type()):
            return int(dist.ProcessGroup.unbox(argument).size())
    raise ValueError("no process group among the arguments")
