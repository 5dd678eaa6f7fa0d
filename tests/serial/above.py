import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
args = parser.parse_args()
torch.manual_seed(3)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
points = torch.randn(256, 4)
targets = points.sum(1, keepdim=True)
loader = DataLoader(
    TensorDataset(points, targets),
    batch_size=32)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 1)

    def forward(self, x):
        return self.inner(x)


model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train(epoch):
    model.train()
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        (model(x) - y).pow(2).mean().backward()
        optimizer.step()


def test():
    with torch.no_grad():
        return (model(points.to(device)) - targets.to(device)).pow(2).mean().item()


if __name__ == "__main__":
    for epoch in range(1, args.epochs + 1):
        train(epoch)
        print(f"epoch {epoch}")
    print(f"final loss {test():.6f}")
