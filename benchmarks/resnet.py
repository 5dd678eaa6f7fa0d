"""ResNet-50 at 224² and ResNet50V2 at 128² on one accelerator: ours, a plain loop, timm's step.

    python benchmarks/resnet.py [--rounds 8] [--steps 40] [--small] [--only MODEL]

Same model, same precision (bf16), compiled, channels last, fused SGD; every loop has its own copy
of the model, and stretches of steps of the three alternate in one process. The plain loop and
timm's step get images that lie on the device, finished; ours gets bytes (CIFAR's own format for
ResNet50V2, enlarged on the way) and finishes them itself, and its steps are replayed
(``compile = "graphs"``). timm's step is the one of its training script: its optimizer factory, its
loss, its autocast. Shown are images per second and the median of the ratios of neighbouring
stretches with a 90 % interval. Exits with 1 where ours is slower. ``--small`` tries the benchmark
itself on a machine without an accelerator.
"""

import argparse
import pickle
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

MODELS = {"resnet50": (224, 256), "resnet50v2": (128, 512)}
"""The edge of their images, and the batch."""
LEAST = 1.0


def main() -> None:
    """Compare on both models."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--only", choices=MODELS)
    parser.add_argument("--small", action="store_true")
    asked = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    slower = False
    with tempfile.TemporaryDirectory() as home:
        for name in [asked.only] if asked.only else MODELS:
            edge, batch = (32, 4) if asked.small else MODELS[name]
            data = f"synthetic:{8 * batch}x{edge}x{edge}x3"
            if name == "resnet50v2":
                data = str(made_up_cifar(Path(home), 256 if asked.small else 10_000))
            slower |= compare(name, data, edge, batch, device, asked)
    dist.destroy_process_group()
    sys.exit("ours is slower" if slower else 0)


def made_up_cifar(folder: Path, count: int) -> Path:
    """Write files in CIFAR-10's format."""
    chance = np.random.default_rng(0)
    for name in [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]:
        rows = chance.integers(0, 256, (count // 5, 3072), dtype=np.uint8)
        labels = chance.integers(0, 10, count // 5).tolist()
        (folder / name).write_bytes(pickle.dumps({b"data": rows, b"labels": labels}))
    return folder


def compare(name: str, data: str, edge: int, batch: int, device: torch.device, asked) -> bool:
    """Alternate the loops on one model; return whether ours is slower."""
    loops = {
        "ours": ours(name, data, edge, batch, device),
        "plain": plain(name, edge, batch, device),
        "timm": of_timm(name, edge, batch, device),
    }
    seconds: dict[str, list[float]] = {each: [] for each in loops}
    chance = random.Random(0)
    for number in range(asked.rounds + 1):
        for each in chance.sample(list(loops), len(loops)):
            began = time.perf_counter()
            loops[each](asked.steps)
            if number:  # The first stretch compiles.
                seconds[each].append(time.perf_counter() - began)
    print(f"{name} at {edge} × {edge}, batch {batch}, {asked.rounds} stretches of {asked.steps}")
    slower = False
    for each in loops:
        rate = asked.steps * batch / float(np.median(seconds[each]))
        said = f"  {each:<6} {rate:9.1f} images/s"
        if each != "ours":
            ratios = np.array(seconds[each]) / np.array(seconds["ours"])
            draws = np.random.default_rng(0).choice(ratios, (2000, len(ratios)))
            low, high = np.quantile(np.median(draws, axis=1), [0.05, 0.95])
            said += f"   ours / {each} {np.median(ratios):.4f} ({low:.4f} to {high:.4f})"
            slower |= bool(np.median(ratios) < LEAST)
        print(said, flush=True)
    return slower


def ours(name: str, data: str, edge: int, batch: int, device: torch.device):
    """Return our training, from the bytes on."""
    from scalewise.frameworks.data_source import Source
    from scalewise.frameworks.torch.input.data_sets import load
    from scalewise.frameworks.torch.session import TorchSession
    from scalewise.probe import Unwatched
    from scalewise.spec import RunSpec

    spec = RunSpec.from_dict(
        {
            "topology": "1x1", "workload": name, "data": data, "edge": edge, "batch": batch,
            "steps": 10**6, "precision": "bf16", "compile": "graphs", "optimizer_step": "fused",
            "workers": 4,
        }
    )  # fmt: skip
    source = Source.of_run(spec)
    training = TorchSession(spec, load(source, spec).placed(device, source), device)
    training.compile()
    training.begin(0)

    def steps(count: int) -> None:
        for _ in range(count):
            training.step(Unwatched())
        training.settle()

    return steps


def model_and_batch(name: str, edge: int, batch: int, device: torch.device):
    """Return a model of ours by itself, and a batch on the device, both channels last."""
    from scalewise import plugins

    torch.manual_seed(0)
    with device:
        made: nn.Module = plugins.load("workloads", name, framework="torch")((3, edge, edge), 10)
        images = torch.randn(batch, 3, edge, edge)
        labels = torch.randint(0, 10, (batch,))
    model = made.to(memory_format=torch.channels_last)
    return model, images.contiguous(memory_format=torch.channels_last), labels


def plain(name: str, edge: int, batch: int, device: torch.device) -> Callable[[int], None]:
    """Return the loop that anyone would write who knows the three switches."""
    model, images, labels = model_and_batch(name, edge, batch, device)
    model = torch.compile(model)
    learner = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)

    def steps(count: int) -> None:
        for _ in range(count):
            with torch.autocast(device.type, torch.bfloat16):
                loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            learner.step()
            learner.zero_grad()
        settle(device)

    return steps


def of_timm(name: str, edge: int, batch: int, device: torch.device) -> Callable[[int], None]:
    """Return the step of timm's training script on the same model."""
    from timm.loss import LabelSmoothingCrossEntropy
    from timm.optim import create_optimizer_v2

    model, images, labels = model_and_batch(name, edge, batch, device)
    learner = create_optimizer_v2(model, opt="sgd", lr=0.01, momentum=0.9, weight_decay=0.0)
    model = torch.compile(model)
    loss_of = LabelSmoothingCrossEntropy(smoothing=0.1)

    def steps(count: int) -> None:
        for _ in range(count):
            with torch.autocast(device.type, torch.bfloat16):
                loss = loss_of(model(images), labels)
            loss.backward()
            learner.step()
            learner.zero_grad()
        settle(device)

    return steps


def settle(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
