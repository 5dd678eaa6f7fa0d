"""A model in parts, one after the other, that says where it may be cut."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True, slots=True)
class Seams:
    """Where a model may be cut; names of layers are those inside a block."""

    columns: tuple[str, ...] = ()
    """Layers whose outputs may be split over devices."""
    rows: tuple[str, ...] = ()
    """Layers whose inputs may be split: each takes what columns give."""
    joined: tuple[str, ...] = ()
    """Layers and groups of layers that need the whole sequence."""
    norms: tuple[str, ...] = ()
    """Layers that may work on a part of the sequence."""
    heads: int | None = None
    """What the split of columns must keep whole."""
    length: int | None = None
    """Positions of the sequence, where there is one."""


class Parts(nn.Sequential):
    """Named parts in a row. The repeated ones, ``blocks``, are those that may be dealt out."""

    def __init__(
        self,
        first: Mapping[str, nn.Module],
        blocks: Mapping[str, nn.Module],
        last: Mapping[str, nn.Module],
        seams: Seams | None = None,
    ) -> None:
        super().__init__()
        for name, part in {**first, **blocks, **last}.items():
            self.add_module(name, part)
        self.blocks = tuple(blocks)
        self.seams = seams or Seams()

    def stage(self, number: int, count: int) -> "Parts":
        """Return one of ``count`` stages: its share of the blocks, at the ends what is there."""
        cuts = [len(self.blocks) * n // count for n in range(count + 1)]
        mine = self.blocks[cuts[number] : cuts[number + 1]]
        names = [name for name, _ in self.named_children()]
        before = names[: names.index(self.blocks[0])] if number == 0 else []
        after = names[names.index(self.blocks[-1]) + 1 :] if number == count - 1 else []

        def some(names: Sequence[str]) -> dict[str, nn.Module]:
            return {name: self.get_submodule(name) for name in names}

        return Parts(some(before), some(mine), some(after), self.seams)


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """Return a model's repeated parts; none where it names none."""
    return [model.get_submodule(name) for name in getattr(model, "blocks", ())]


def seams_of(model: nn.Module) -> Seams:
    """Return where a model may be cut."""
    return getattr(model, "seams", Seams())
