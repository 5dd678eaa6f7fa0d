"""Sequential models that declare where they may be split; and how to find any model's blocks."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torch import nn


def image_shape(shape: tuple[int, int, int] | int) -> tuple[int, int, int]:
    """Return channels, height and width of images; refuse tokens."""
    if isinstance(shape, int):
        raise ValueError('it learns from images, for example data = "synthetic:1000x224x224"')
    return shape


@dataclass(frozen=True, slots=True)
class Seams:
    """Where a model may be split. Layers have the names that they have within their block."""

    columns: tuple[str, ...] = ()
    """Layers whose outputs may be split over devices in tensor parallelism."""
    rows: tuple[str, ...] = ()
    """Layers whose inputs may be split, because their inputs are the outputs of ``columns``."""
    joined: tuple[str, ...] = ()
    """Layers and groups of layers that need the full sequence, in sequence parallelism."""
    norms: tuple[str, ...] = ()
    """Layers that may work on a part of the sequence, in sequence parallelism."""
    heads: int | None = None
    """The number of attention heads: a split of columns must not cut through a head."""
    length: int | None = None
    """The length of the sequence, if there is one."""
    tied: bool = False
    """Whether the last part uses weights of the first, so that both need to be on one device."""


class Parts(nn.Sequential):
    """Named parts in sequence. The repeated ones, ``blocks``, may be distributed over stages."""

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

    def stage(self, index: int, count: int) -> "Parts":
        """Return one of ``count`` pipeline stages: a share of the blocks. The first stage also has
        the parts before the blocks, the last stage those after them.
        """
        start, end = (len(self.blocks) * n // count for n in (index, index + 1))
        blocks: Iterable[str] = self.blocks[start:end]
        names = [name for name, _ in self.named_children()]
        before = names[: names.index(self.blocks[0])] if index == 0 else []
        after = names[names.index(self.blocks[-1]) + 1 :] if index == count - 1 else []
        first, middle, last = (
            {name: self.get_submodule(name) for name in group} for group in (before, blocks, after)
        )
        return Parts(first, middle, last, self.seams)


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """Return a model's repeated blocks. Models other than ``Parts`` do not declare them: find the
    longest list of equal modules; the blocks are its members and those of all lists like it.
    """
    if isinstance(model, Parts):
        return [model.get_submodule(name) for name in model.blocks]
    lists = {module: kind for module in model.modules() if (kind := _member_kind(module))}
    longest = max(lists, key=lambda module: len([*module.children()]), default=None)
    if longest is None or len([*longest.children()]) == 1:
        return []
    blocks: list[nn.Module] = []
    nested: set[nn.Module] = set()
    for module, kind in lists.items():
        if kind == lists[longest] and module not in nested:
            blocks += module.children()
            nested.update(module.modules())
    return blocks


def _member_kind(module: nn.Module) -> object:
    """Return the class that all members of a list of modules have. For members that are lists, it
    is the tuple of classes in them. Return None if members differ or a member is a single layer.
    """
    kinds: set[object] = set()
    members = [*module.children()] if isinstance(module, (nn.ModuleList, nn.Sequential)) else []
    for member in members:
        classes = tuple(type(child) for child in member.children())
        if not classes:
            return None
        kinds.add(classes if type(member) in (nn.Sequential, nn.ModuleList) else type(member))
    return kinds.pop() if len(kinds) == 1 else None


def seams_of(model: nn.Module) -> Seams:
    """Return where a model may be split: nowhere, if it does not declare ``seams``."""
    return getattr(model, "seams", Seams())
