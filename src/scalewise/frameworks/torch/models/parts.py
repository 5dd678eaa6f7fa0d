"""A model in parts, one after the other, that says where it may be cut."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import nn


def image_shape(shape: tuple[int, int, int] | int) -> tuple[int, int, int]:
    """Return an image's channels, height and width; refuse tokens, of which there is a number."""
    if isinstance(shape, int):
        raise ValueError('it learns from images, for example data = "synthetic:1000x224x224"')
    return shape


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
    tied: bool = False
    """Whether the last part uses weights of the first: both must then lie on one device."""


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
    """Return a model's repeated parts: those that it names, or else those that are found."""
    if isinstance(model, Parts):
        return [model.get_submodule(name) for name in model.blocks]
    return _alike(model)


def _alike(model: nn.Module) -> list[nn.Module]:
    """Return the members of a model's longest row of one kind, and of all other rows of it."""
    rows = {each: kind for each in model.modules() if (kind := _kind_of_row(each))}
    longest = max(rows, key=lambda row: len([*row.children()]), default=None)
    if longest is None or len([*longest.children()]) == 1:
        return []
    found: list[nn.Module] = []
    inside: set[nn.Module] = set()
    for row in [each for each, kind in rows.items() if kind == rows[longest]]:
        if row not in inside:
            found += row.children()
            inside.update(row.modules())
    return found


def _kind_of_row(row: nn.Module) -> object:
    """Return what all members of a row are; nothing where they differ, or are single layers."""
    members = [*row.children()] if isinstance(row, (nn.ModuleList, nn.Sequential)) else []
    kinds = {_kind(each) for each in members}
    made = all(any(True for _ in each.children()) for each in members)
    return kinds.pop() if made and len(kinds) == 1 else None


def _kind(module: nn.Module) -> object:
    """Return a module's class; a mere row of modules is what they are."""
    if type(module) in (nn.Sequential, nn.ModuleList):
        return tuple(type(each) for each in module.children())
    return type(module)


def seams_of(model: nn.Module) -> Seams:
    """Return where a model may be cut."""
    return getattr(model, "seams", Seams())
