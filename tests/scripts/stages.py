"""Fine-tuning, then the last layer of another model alone: two trainings in one program.

Each with an optimizer of its own; a new loader for each epoch, validations without ``no_grad``,
and a batch that is only looked at before.
"""

import copy

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
digits = load_digits()
x = torch.tensor(digits.data[:800], dtype=torch.float32) / 16
y = torch.tensor(digits.target[:800])


def loader_of(part, shuffle):
    return DataLoader(TensorDataset(x[part], y[part]), batch_size=32, shuffle=shuffle)


def train_model(model, optimizer, epochs):
    best, right_of_best = copy.deepcopy(model.state_dict()), -1
    for epoch in range(epochs):
        model.train()
        for inputs, labels in loader_of(slice(0, 640), shuffle=True):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
        model.eval()
        right = 0
        for inputs, labels in loader_of(slice(640, 800), shuffle=False):
            right += int((model(inputs).argmax(1) == labels).sum())
        if right > right_of_best:
            best, right_of_best = copy.deepcopy(model.state_dict()), right
        print(f"epoch {epoch + 1}: {right} of 160")
    model.load_state_dict(best)
    return model


images, labels = next(iter(loader_of(slice(0, 640), shuffle=True)))
print("a look at", tuple(images.shape))

model_ft = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer_ft = torch.optim.SGD(model_ft.parameters(), lr=0.1, momentum=0.9)
model_ft = train_model(model_ft, optimizer_ft, epochs=2)


class Frozen(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body
        for parameter in self.body.parameters():
            parameter.requires_grad = False
        self.last = nn.Linear(64, 10)

    def forward(self, images):
        return self.last(self.body(images))


model_conv = Frozen(copy.deepcopy(model_ft[:2]))
optimizer_conv = torch.optim.SGD(model_conv.last.parameters(), lr=0.1, momentum=0.9)
train_model(model_conv, optimizer_conv, epochs=2)
