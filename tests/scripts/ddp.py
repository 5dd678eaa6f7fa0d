"""DDP as the textbooks write it: sampler, set_epoch, validation each epoch, save on rank 0."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def digits(count, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 64, generator=g)
    return TensorDataset(x, x[:, :10].argmax(1))


@torch.no_grad()
def validate(model, loader, device):
    model.eval()
    correct = torch.zeros(2)
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        correct += torch.tensor([(model(x).argmax(1) == y).sum().item(), len(y)])
    model.train()
    return correct


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16, help="per process")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--validate-on", choices=["all", "rank0"], default="all")
    args = parser.parse_args()

    enough = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    dist.init_process_group("nccl" if enough else "gloo")
    rank = dist.get_rank()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)

    torch.manual_seed(0)
    train_set, val_set = digits(640, 0), digits(128, 1)
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, sampler=sampler)
    everyone = args.validate_on == "all"
    val_sampler = DistributedSampler(val_set, shuffle=False) if everyone else None
    val_loader = DataLoader(val_set, batch_size=32, sampler=val_sampler)

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    model = DDP(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in train_loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        if everyone:
            correct = validate(model, val_loader, device)
            dist.all_reduce(correct)
        elif rank == 0:
            correct = validate(model.module, val_loader, device)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f} accuracy {correct[0] / correct[1]:.3f}")
            torch.save(model.module.state_dict(), "ddp.pt")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
