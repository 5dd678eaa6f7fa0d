"""FSDP2: fully_shard by block, AdamW, room for a DCP checkpoint's state, and one at the end."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = (
            nn.LayerNorm(width),
            nn.Linear(width, 2 * width),
            nn.Linear(2 * width, width),
        )

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), *(Block(64) for _ in range(3)), nn.Linear(64, 4))
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    get_state_dict(model, optimizer)  # What is to be filled where a script goes on from another.

    torch.manual_seed(rank)
    for step in range(12):
        x, y = torch.randn(8, 16), torch.randint(4, (8,))
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 4 == 0:
            print(f"step {step} loss {loss.item():.4f}")

    model_state, optimizer_state = get_state_dict(model, optimizer)
    folder = [tempfile.mkdtemp() if rank == 0 else ""]
    dist.broadcast_object_list(folder)
    state = {"model": model_state, "optimizer": optimizer_state}
    dcp.save(state, checkpoint_id=os.path.join(folder[0], "last"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
