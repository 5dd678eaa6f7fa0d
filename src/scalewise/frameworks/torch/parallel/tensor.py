"""Tensor parallelism: the devices of a group split the layers of every block.

A layer split by columns and the layer split by rows after it need one exchange together. Between
such pairs devices split the sequence (sequence parallelism), if they divide its length.
"""

from dataclasses import replace

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from scalewise.frameworks.torch.models.parts import blocks_of, seams_of

try:
    from torch.distributed.tensor import Replicate, Shard
except ImportError:  # In version 2.4 of PyTorch these classes are private.
    from torch.distributed._tensor import Replicate, Shard  # type: ignore[attr-defined]  # Old.


def split_blocks(model: nn.Module, mesh: DeviceMesh) -> None:
    """Split the layers of every block over a group of devices, in place."""
    seams, blocks = seams_of(model), blocks_of(model)
    if seams.length is not None and seams.length % mesh.size():
        # No sequence parallelism: with a class token, for example, there are 257 positions.
        seams = replace(seams, norms=(), joined=())
    block_layout = Shard(1) if seams.norms else Replicate()
    plan = {
        **{name: ColwiseParallel() for name in seams.columns},
        **{name: RowwiseParallel(output_layouts=block_layout) for name in seams.rows},
        **{name: SequenceParallel() for name in seams.norms},
        **{
            name: PrepareModuleInput(
                input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
            )
            for name in seams.joined
        },
    }
    for block in blocks:
        names = {name for name, _ in block.named_modules()}
        parallelize_module(block, mesh, {name: plan[name] for name in plan if name in names})
    if seams.norms:
        # Layers before the first block and after the last one see full sequences.
        split_sequence = PrepareModuleInput(
            input_layouts=(Replicate(),), desired_input_layouts=(Shard(1),), use_local_output=True
        )
        join_sequence = PrepareModuleOutput(
            output_layouts=(Shard(1),), desired_output_layouts=(Replicate(),), use_local_output=True
        )
        parallelize_module(blocks[0], mesh, split_sequence)
        parallelize_module(blocks[-1], mesh, join_sequence)
