"""Measure what sketches cost a training: their share of the processor time of 200 steps.

    python benchmarks/certificate_cost.py [--steps 200]

Two models on one thread of a CPU: a GPT, and a convolutional network with residuals and batch
normalization. It counts the preparation before the first step (finding the layers' names), the
sketches as JSON, and the fingerprints of the samples; not the calls of the hooks between these, nor
writing the file. The sketched steps are mostly the first ones: in a run of 24 steps their share is
several times as large as in one of 200. Exits with 1 where it is not below 1 %.
"""

import argparse
import json
import time
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from scalewise.frameworks.torch.models.gpt import gpt
from scalewise.probe.torch import certificate_mode as mode
from scalewise.probe.torch.sketch import sample_fingerprints
from scalewise.watch.torch.certificate import find_roots

MAX_SHARE = 0.01


class Residual(nn.Module):
    """Two convolutions with batch normalization, added to their input."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        stride = 1 if before == after else 2
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(after), nn.BatchNorm2d(after)
        self.skip = nn.Identity() if stride == 1 else nn.Conv2d(before, after, 1, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(hidden)) + self.skip(x))


def resnet() -> tuple[nn.Module, Callable[[], tuple[Tensor, Tensor]]]:
    """Return a narrow 18-layer ResNet for small images, and its batches."""
    widths = [32, 32, 32, 64, 64, 128, 128, 256, 256]
    blocks = [Residual(before, after) for before, after in pairwise(widths)]
    first = [nn.Conv2d(3, 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU()]
    last = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10)]
    model = nn.Sequential(*first, *blocks, *last)
    return model, lambda: (torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,)))


def small_gpt() -> tuple[nn.Module, Callable[[], tuple[Tensor, Tensor]]]:
    """Return a GPT of four blocks, and its batches."""
    model = gpt(128, 256, width=192, depth=4, heads=4)

    def batch() -> tuple[Tensor, Tensor]:
        tokens = torch.randint(0, 256, (8, 129))
        return tokens[:, :-1], tokens[:, 1:]

    return model, batch


def cost(
    model: nn.Module, batch: Callable[[], tuple[Tensor, Tensor]], steps: int
) -> tuple[float, float, int]:
    """Return the seconds of the training and of its sketches, and how many steps were sketched."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    lines: list[str] = []
    began = start = time.process_time()
    names = mode.parameter_names(find_roots())
    named = {names[id(parameter)]: parameter for parameter in model.parameters()}
    sketches = mode.OptimizerSketches(
        named,
        lambda **line: lines.append(json.dumps(line)),
        lambda: mode.buffers_of([model]),
        mode.last_sketched(steps),
    )
    seconds, sketched = time.process_time() - start, 0
    for _ in range(steps):
        inputs, labels = batch()
        cross_entropy(model(inputs).flatten(0, -2), labels.flatten()).backward()
        start = time.process_time()
        if sketches.next_is_sketched:
            lines.append(json.dumps(sample_fingerprints([inputs, labels])))
        sketches.begin_step()
        middle = time.process_time()
        optimizer.step()
        end = time.process_time()
        sketched += sketches.end_step()
        seconds += middle - start + time.process_time() - end
        optimizer.zero_grad()
    return time.process_time() - began - seconds, seconds, sketched


def main() -> None:
    """Train both models, print what their sketches cost, and fail if that is too much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    too_much = False
    for name, make in {"gpt": small_gpt, "resnet18": resnet}.items():
        model, batch = make()
        layers = len([*model.parameters()])
        training, seconds, sketched = cost(model, batch, steps)
        share = seconds / training
        print(
            f"{name}: {layers} layers, {steps} steps in {training:.1f} s of processor time, "
            f"{sketched} sketched in {seconds * 1000:.0f} ms: {share:.2%}",
            flush=True,
        )
        too_much |= share >= MAX_SHARE
    raise SystemExit(too_much)


if __name__ == "__main__":
    main()
