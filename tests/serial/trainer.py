"""Tell digits apart with a Trainer that keeps model and loaders, and the best checkpoint."""
import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Digits(Dataset):
    def __init__(self):
        found = load_digits()
        self.images = torch.tensor(found.data, dtype=torch.float32) / 16
        self.labels = torch.tensor(found.target)

    def __len__(self):
        return 1536

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


class Trainer:
    def __init__(self, model, train_loader, eval_loader, device):
        self.device = device
        self.model = model.to(device)
        self.train_loader = train_loader
        self.eval_loader = eval_loader
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.criterion = nn.CrossEntropyLoss()
        self.best = float("inf")

    def train_step(self, images, labels):
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(images), labels)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def train_epoch(self):
        self.model.train()
        total = 0.0
        for images, labels in self.train_loader:
            images = images.to(self.device)
            labels = labels.to(self.device)
            total += self.train_step(images, labels) * len(images)
        return total / len(self.train_loader.dataset)

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        total = 0.0
        for images, labels in self.eval_loader:
            images, labels = images.to(self.device), labels.to(self.device)
            total += self.criterion(self.model(images), labels).item() * len(images)
        return total / len(self.eval_loader.dataset)

    def fit(self, epochs):
        for _ in range(epochs):
            mean = self.train_epoch()
            loss = self.evaluate()
            print(f"mean {mean:.6f}, after {loss:.6f}")
            if loss < self.best:
                self.best = loss
                torch.save({
                    "model": self.model.state_dict(),
                    "optimizer": self.optimizer.state_dict(),
                    "note": """best
so far""",
                }, "trainer.pt")
        print(f"final loss {self.best:.6f}")


def main() -> int:
    torch.manual_seed(3)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = Digits()
    model = nn.Sequential(nn.Linear(64, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 10))
    trainer = Trainer(
        model,
        DataLoader(data, batch_size=64, shuffle=True, drop_last=True),
        DataLoader(data, batch_size=256),
        device,
    )
    trainer.fit(6)
    return 0


if __name__ == "__main__":
    sys.exit(main())
