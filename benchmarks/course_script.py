"""A ViT-H/14 on an image folder as a course shows it: what we are compared with.

    torchrun --standalone --nproc-per-node=1 course_script.py FOLDER OUT [--small]

Torchvision's model in DDP, the whole of it compiled in mode reduce-overhead, bf16 autocast,
SGD, an ImageFolder read with PIL by ten workers, the loss taken to the host in every step,
one validation at the end. Rank 0 writes what it saw to OUT.
"""

import argparse
import json
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, models, transforms


def main() -> None:
    """Train, and tell the rate of each epoch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("out")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--model", default="vit_h_14")
    asked = parser.parse_args()

    dist.init_process_group("nccl")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.manual_seed(0)

    means = transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    seen = transforms.Compose([transforms.Resize((224, 224)), transforms.ToTensor(), means])
    train = datasets.ImageFolder(os.path.join(asked.folder, "train"), seen)
    held = datasets.ImageFolder(os.path.join(asked.folder, "val"), seen)
    sampler = DistributedSampler(train, shuffle=True, seed=0)
    given = {"batch_size": asked.batch, "num_workers": asked.workers, "pin_memory": True}
    loader = DataLoader(train, sampler=sampler, drop_last=True, **given)
    checks = DataLoader(held, sampler=DistributedSampler(held, shuffle=False), **given)

    model = models.get_model(asked.model, num_classes=len(train.classes)).to(local)
    model = DistributedDataParallel(model, device_ids=[local])
    model = torch.compile(model, mode="reduce-overhead")
    learner = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    measure = nn.CrossEntropyLoss()

    epochs, losses = [], []
    for epoch in range(asked.epochs):
        sampler.set_epoch(epoch)
        model.train()
        began = time.perf_counter()
        for images, labels in loader:
            images, labels = images.to(local), labels.to(local)
            learner.zero_grad()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = measure(model(images), labels)
            loss.backward()
            learner.step()
            losses.append(loss.item())
        torch.cuda.synchronize()
        epochs.append(time.perf_counter() - began)
    began = time.perf_counter()
    model.eval()
    right = 0
    with torch.no_grad():
        for images, labels in checks:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                right += (model(images.to(local)).argmax(1) == labels.to(local)).sum().item()
    if dist.get_rank() == 0:
        steps = len(loader) * asked.batch
        answer = {
            "rate": steps * (asked.epochs - 1) / sum(epochs[1:]),
            "epochs": epochs,
            "validation": time.perf_counter() - began,
            "memory": torch.cuda.max_memory_reserved() / 2**30,
            "losses": losses,
            "accuracy": right / len(held),
        }
        with open(asked.out, "w", encoding="utf-8") as file:
            json.dump(answer, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
