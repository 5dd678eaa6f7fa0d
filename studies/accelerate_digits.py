"""An Accelerate script as people have them: scalewise is nowhere in it. See accelerate.toml."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def main() -> None:
    """Train for ten epochs on as many devices as the starter says."""
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    set_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    whole = TensorDataset(images, torch.tensor(digits.target))
    train, held_out = random_split(whole, [0.8, 0.2])
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 2 * 2, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = DataLoader(train, batch_size=32, shuffle=True)
    checks = DataLoader(held_out, batch_size=64)
    model, optimizer, loader, checks = accelerator.prepare(model, optimizer, loader, checks)
    for epoch in range(10):
        model.train()
        for inputs, labels in loader:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.cross_entropy(model(inputs), labels))
            optimizer.step()
        model.eval()
        right = []
        for inputs, labels in checks:
            with torch.no_grad():
                found = model(inputs).argmax(1)
            right.append(accelerator.gather_for_metrics(found == labels))
        accelerator.print(f"epoch {epoch}: accuracy {torch.cat(right).float().mean():.3f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
