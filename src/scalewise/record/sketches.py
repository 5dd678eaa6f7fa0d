"""Put the sketches of all ranks together: shards of a layer add up to the layer."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scalewise.record.read import RankRecord
from scalewise.record.schema import LayerSketch, Sketch, SketchKind


@dataclass(frozen=True, slots=True)
class LayerCopy:
    """A sketch of a complete layer, and the ranks that hold it: one, or those of its shards."""

    ranks: tuple[int, ...]
    sketch: LayerSketch


def sketched_steps(ranks: Sequence[RankRecord], kind: SketchKind) -> list[int]:
    """Return the steps of which some rank has sketches of this kind, in order."""
    return sorted(
        {sketch.step for rank in ranks for sketch in rank.sketches if sketch.kind == kind}
    )


def layer_copies(
    ranks: Sequence[RankRecord], step: int, kind: SketchKind
) -> dict[str, tuple[LayerCopy, ...]]:
    """Return every copy of each layer at one step: replicas have one each, a sharded model one.

    A layer of which a shard is missing is left out.
    """
    layers: dict[str, list[tuple[int, LayerSketch]]] = defaultdict(list)
    for rank in ranks:
        for sketch in rank.sketches:
            if (sketch.step, sketch.kind) == (step, kind):
                for name, layer in sketch.layers.items():
                    layers[name].append((rank.rank, layer))
    copies = {name: _join(parts) for name, parts in layers.items()}
    return {name: layer for name, layer in copies.items() if layer}


def _join(parts: Sequence[tuple[int, LayerSketch]]) -> tuple[LayerCopy, ...]:
    """Return the copies of one layer; the first rank with each shard makes the first copy."""
    copies = [LayerCopy((rank,), layer) for rank, layer in parts if layer.shard is None]
    by_shard: dict[int, list[tuple[int, LayerSketch]]] = defaultdict(list)
    count = 0
    for rank, layer in parts:
        if layer.shard is not None:
            index, count = layer.shard
            by_shard[index].append((rank, layer))
    if len(by_shard) == count:  # Also if there are no shards: then nothing is added.
        for shards in zip(*(by_shard[index] for index in range(count)), strict=False):
            total = add_sketches([layer for _, layer in shards])
            copies.append(LayerCopy(tuple(rank for rank, _ in shards), total))
    return tuple(copies)


def add_sketches(shards: Sequence[LayerSketch]) -> LayerSketch:
    """Return the sketch of the layer that consists of these shards.

    >>> add_sketches([LayerSketch((1.0, 2.0), 3.0, "shard", (0, 2)),
    ...               LayerSketch((0.5, -2.0), 1.0, "shard", (1, 2))])
    LayerSketch(sums=(1.5, 0.0), squares=4.0, part='whole', shard=None)
    """
    sums = tuple(map(sum, zip(*(shard.sums for shard in shards), strict=True)))
    return LayerSketch(sums, sum(shard.squares for shard in shards))


def sketches_by_step(rank: RankRecord, kind: SketchKind) -> Mapping[int, Sketch]:
    """Return a rank's sketches of this kind, by step."""
    return {sketch.step: sketch for sketch in rank.sketches if sketch.kind == kind}
