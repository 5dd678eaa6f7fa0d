#!/usr/bin/env python
# An older style: args.cuda, loaders around their datasets, a global train().
import argparse
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument('--no-cuda', action='store_true')
parser.add_argument('--batch', type=int, default=40)
args = parser.parse_args()
args.cuda = not args.no_cuda and torch.cuda.is_available()

torch.manual_seed(11)
if args.cuda:
    torch.cuda.manual_seed(11)
signal = torch.randn(400, 6)
answer = signal.tanh().sum(1, keepdim=True)

kwargs = {'num_workers': 0, 'pin_memory': True} if args.cuda else {}
train_loader = DataLoader(
    TensorDataset(
        signal,  # what goes in
        answer,
    ),
    batch_size=args.batch * 2, shuffle=False, **kwargs)


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.hidden = nn.Linear(6, 24)
        self.out = nn.Linear(24, 1)

    def forward(self, x):
        return self.out(torch.relu(self.hidden(x)))


model = Net()
if args.cuda:
    model.cuda()
print(model.hidden.weight.shape)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)


def train(epoch):
    model.train()
    total = 0.
    for data, target in train_loader:
        if args.cuda:
            data, target = data.cuda(), target.cuda()
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(data), target)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(data)
    print('Epoch', epoch, 'loss', total / len(train_loader.dataset))


for epoch in range(5):
    train(epoch)
print(model.out.bias.shape)
with torch.no_grad():
    last = nn.functional.mse_loss(model.cpu()(signal), answer)
print('final loss %.6f' % last.item())
