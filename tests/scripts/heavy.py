"""DDP with much to exchange, or with a slow loader: for comparing with a profiler."""

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Numbers(Dataset):
    """Random samples; each takes a while where that is asked for."""

    def __init__(self, size, width, seconds):
        g = torch.Generator().manual_seed(0)
        self.x = torch.randn(min(size, 1024), width, generator=g)
        self.size, self.seconds = size, seconds

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        if self.seconds:
            time.sleep(self.seconds)
        return self.x[index % len(self.x)], index % 10


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=32, help="per process")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--repeat", type=int, default=1, help="times a batch is computed on")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--bucket-mb", type=float, default=25)
    parser.add_argument("--bucket-view", action="store_true", help="gradients live in the buckets")
    parser.add_argument("--slow-loader", type=float, default=0, help="seconds per sample")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--backend", default="gloo")
    args = parser.parse_args()

    dist.init_process_group(args.backend)
    device = torch.device("cpu")
    if args.device == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)

    torch.manual_seed(0)
    size = args.steps * args.batch_size * dist.get_world_size()
    data = Numbers(size, args.width, args.slow_loader)
    loader = DataLoader(
        data, args.batch_size, sampler=DistributedSampler(data), num_workers=args.workers
    )
    layers = [m for _ in range(args.depth) for m in (nn.Linear(args.width, args.width), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(args.width, 10)).to(device)
    model = DDP(model, bucket_cap_mb=args.bucket_mb, gradient_as_bucket_view=args.bucket_view)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in loader:
        x, y = x.to(device).repeat(args.repeat, 1), y.to(device).repeat(args.repeat)
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
