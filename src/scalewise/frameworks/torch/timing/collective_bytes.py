"""What one step of this rank exchanges with others, counted once, in an early step.

Every collective passes PyTorch's dispatcher, whoever calls it: Python, the
reducer of DDP in the midst of a backward, a tensor that is spread over devices.
So one step is done under a mode that looks at each call. That step is slower;
it is named in the record, and the steady part begins after it.

What a rank puts on the wire is not seen but reckoned, by the usual counts of
rings: of n ranks each sends 2 (n - 1)/n of what is all-reduced, and (n - 1)/n
of what is gathered, scattered, broadcast or exchanged by all with all.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from scalewise.spec import RunSpec

COUNTED_STEP = 2
"""The index of the step that is counted: the first ones also arrange what later ones do."""
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
"""Calls in which nothing is sent, or whose sender has counted it."""


class CollectiveCounter:
    """Counts what one step of a session exchanges."""

    def __init__(self, spec: RunSpec) -> None:
        self._alone = spec.topology.world == 1
        self._compiled = bool(spec.compile)
        self._taken = 0
        self._looking: ExitStack | None = None
        self.found: dict[str, Any] | None = {"exchanged": {}} if self._alone else None
        """The step that was counted, and for each kind its calls, its payload and what was sent."""

    def __enter__(self) -> None:
        if self._taken == COUNTED_STEP and not self._alone:
            self._looking = self._look()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._taken += 1
        if self._looking:
            looking, self._looking = self._looking, None
            looking.__exit__(kind, problem, trace)

    def _look(self) -> ExitStack | None:
        """Look at every call from here on; nothing where this version of PyTorch cannot."""
        with ExitStack() as looking:
            try:
                if self._compiled:
                    # What is called under a mode would never be compiled again.
                    looking.enter_context(torch.compiler.set_stance("force_eager"))
                tally = looking.enter_context(_mode()).tally
            except (ImportError, AttributeError):
                return None
            looking.callback(self._keep, tally)
            return looking.pop_all()
        return None

    def _keep(self, tally: "Tally") -> None:
        if tally.known:
            self.found = {"step": COUNTED_STEP, "exchanged": tally.kinds}


class Tally:
    """Calls, bytes and bytes sent, by kind of collective."""

    def __init__(self) -> None:
        self.kinds: dict[str, dict[str, int]] = {}
        self.known = True
        """Whether every collective was understood."""

    def call(self, operator: Any, words: Iterable[Any], answer: Any) -> None:
        """Take one call of an operator; one that is not understood makes all unknown."""
        space, _, name = operator._schema.name.partition("::")
        plain = name.replace("_", "")
        if space not in NAMESPACES or plain.startswith(IGNORED_OPERATORS):
            return
        kind = next((KINDS[each] for each in KINDS if plain.startswith(each)), None)
        try:
            if kind is None:
                raise ValueError(name)
            words = list(words)
            self._add(kind, max(map(_bytes, [*words, answer])), _size(words))
        except Exception:
            self.known = False

    def _add(self, kind: str, whole: int, ranks: int) -> None:
        one = self.kinds.setdefault(kind, {"calls": 0, "bytes": 0, "sent": 0})
        one["calls"] += 1
        one["bytes"] += whole
        one["sent"] += sent_bytes(kind, whole, ranks)


def sent_bytes(kind: str, whole: int, ranks: int) -> int:
    """Return the bytes that each of so many ranks sends, by the usual count.

    >>> sent("all-reduce", 100, 4), sent("all-gather", 100, 4), sent("point-to-point", 100, 4)
    (150, 75, 100)
    """
    if kind == "point-to-point":
        return whole
    return (2 if kind == "all-reduce" else 1) * whole * (ranks - 1) // ranks


def _mode() -> Any:
    """Return what looks at every call while it is entered."""
    from torch.utils._python_dispatch import TorchDispatchMode

    mode: Any = TorchDispatchMode

    class Looking(mode):  # type: ignore[misc]  # Its base is looked up.
        def __init__(self) -> None:
            super().__init__()
            self.tally = Tally()

        def __torch_dispatch__(
            self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if any(hasattr(each, "__tensor_flatten__") for each in types):
                return NotImplemented  # Spread over devices: it makes its calls itself, first.
            answer = operator(*args, **(kwargs or {}))
            if hasattr(operator, "_schema"):
                self.tally.call(operator, [*args, *(kwargs or {}).values()], answer)
            return answer

    return Looking()


def _bytes(value: Any) -> int:
    """Return the bytes of all tensors in an argument."""
    return sum(each.numel() * each.element_size() for each in _tensors(value))


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)


def _size(words: list[Any]) -> int:
    """Return how many ranks take part, from the group among an operator's arguments."""
    for word in reversed(words):
        if isinstance(word, str):
            named: Any = dist.distributed_c10d
            return int(named._resolve_process_group(word).size())
        if isinstance(word, dist.ProcessGroup):
            return int(word.size())
        if isinstance(word, torch.ScriptObject) and "ProcessGroup" in str(word._type()):
            return int(dist.ProcessGroup.unbox(word).size())
    raise ValueError("no group")
