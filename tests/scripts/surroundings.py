"""A script that changes directory, redirects stdout, takes arguments with spaces, and exits."""

import os
import sys
import tempfile
from contextlib import redirect_stdout

import torch
from torch import nn

run_name, note = sys.argv[1], sys.argv[2]
if run_name != "my first run" or note != 'it\'s "quoted" $HOME *':
    sys.exit(f"arguments arrived broken: {sys.argv[1:]!r}")
os.chdir(tempfile.mkdtemp(prefix=run_name))
sys.path[:] = [p for p in sys.path if p]
with open("log.txt", "w") as log, redirect_stdout(log):
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(10):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8)).pow(2).mean()
        loss.backward()
        optimizer.step()
        print(f"step {step} {loss.item():.4f}")
    torch.save(model.state_dict(), "model.pt")
sys.stdout = open(os.devnull, "w")
print(f"{run_name} is over: {note}")
sys.exit(0)
