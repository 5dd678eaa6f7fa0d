"""Lightning's Trainer with a module and a checkpoint callback; it can also start its own ranks."""

import argparse
import os

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", nn.functional.cross_entropy(self.net(x), y), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    parser.add_argument("--accumulate", type=int, default=1)
    args = parser.parse_args()
    L.seed_everything(0)
    g = torch.Generator().manual_seed(0)
    x = torch.randn(400, 32, generator=g)
    y = x[:, :4].argmax(1)
    train = DataLoader(TensorDataset(x[:320], y[:320]), batch_size=16, shuffle=True)
    val = DataLoader(TensorDataset(x[320:], y[320:]), batch_size=20)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=args.devices,
        strategy="ddp",
        max_epochs=2,
        accumulate_grad_batches=args.accumulate,
        callbacks=[ModelCheckpoint(dirpath="checkpoints", save_top_k=-1)],
        logger=False,
        enable_progress_bar=False,
    )
    trainer.fit(Classifier(), train, val)


if __name__ == "__main__":
    main()
