"""Accelerate: prepare(), accumulate(), backward(), gather_for_metrics(), save_state()."""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gradient_accumulation_steps", type=int, default=2)
    args = parser.parse_args()
    accelerator = Accelerator(
        cpu=not torch.cuda.is_available(),
        gradient_accumulation_steps=args.gradient_accumulation_steps,
    )
    set_seed(0)
    x = torch.randn(400, 32)
    y = x[:, :4].argmax(1)
    train = DataLoader(TensorDataset(x[:320], y[:320]), batch_size=16, shuffle=True)
    val = DataLoader(TensorDataset(x[320:], y[320:]), batch_size=20)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=20)
    model, optimizer, train, val, scheduler = accelerator.prepare(
        model, optimizer, train, val, scheduler
    )
    for epoch in range(2):
        model.train()
        for inputs, targets in train:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(inputs), targets)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        model.eval()
        correct = total = 0
        for inputs, targets in val:
            with torch.no_grad():
                predictions = model(inputs).argmax(-1)
            predictions, targets = accelerator.gather_for_metrics((predictions, targets))
            correct += (predictions == targets).sum().item()
            total += len(targets)
        accelerator.print(f"epoch {epoch}: accuracy {correct / total:.3f}")
        accelerator.save_state(f"epoch_{epoch}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
