"""What precision, compiling and a fused optimizer give a ViT-L/16 on one accelerator.

    python benchmarks/vit.py [--batch 64] [--steps 40] [--small]

Three trainings of the same model, each in a process of its own with empty compiler caches:
plain eager fp32; bf16 with the whole model compiled; bf16 with its repeated blocks compiled.
Both of bf16 have a fused optimizer. Shown are the steady throughput and the time until the
tenth step, from before the model is built, each as a ratio to the others in this one run.
``--small`` tries the benchmark itself on a machine without an accelerator.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

LARGE = {"patch": 16, "width": 1024, "depth": 24, "heads": 16}
SMALL = {"patch": 8, "width": 64, "depth": 4, "heads": 4}
FAST = {"precision": "bf16", "optimizer_step": "fused"}
WAYS = {
    "eager fp32": {},
    "bf16, whole model compiled, fused": {**FAST, "compile": True},
    "bf16, blocks compiled, fused": {**FAST, "compile": "blocks"},
}
FIRST = 10
"""Steps until which the beginning lasts."""


def main() -> None:
    """Train each way, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.way:
        return print(json.dumps(train(WAYS[asked.way], asked)))
    found = {}
    for way in WAYS:
        with tempfile.TemporaryDirectory() as cache:
            env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "TRITON_CACHE_DIR": cache}
            argv = [sys.executable, __file__, *sys.argv[1:], "--way", way]
            done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, text=True, check=True)
        found[way] = json.loads(done.stdout.splitlines()[-1])
        print(
            f"{way:<36} {found[way]['rate']:9.1f} images/s   "
            f"tenth step after {found[way]['tenth']:7.1f} s   {found[way]['memory']:6.1f} GiB",
            flush=True,
        )
    eager, whole, blocks = found.values()
    print(
        f"\nblocks compiled / eager fp32: {blocks['rate'] / eager['rate']:.2f} x the throughput, "
        f"{blocks['tenth'] / eager['tenth']:.2f} x the time until the tenth step\n"
        f"blocks compiled / whole model compiled: {blocks['rate'] / whole['rate']:.3f} x the "
        f"throughput, {blocks['tenth'] / whole['tenth']:.3f} x the time until the tenth step"
    )
    return None


def train(way: dict, asked: argparse.Namespace) -> dict[str, float]:
    """Train one way with our own session; return what was measured."""
    import torch
    import torch.distributed as dist

    from scalewise.frameworks.torch.input.batches import TensorSamples
    from scalewise.frameworks.torch.input.data_sets import Data, Preprocessing
    from scalewise.frameworks.torch.session import TorchSession
    from scalewise.probe import Unwatched
    from scalewise.spec import RunSpec

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    edge, classes = (32, 10) if asked.small else (224, 1000)
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    count = 4 * asked.batch
    pixels = torch.randint(0, 256, (count, edge, edge, 3), dtype=torch.uint8)
    images = TensorSamples(pixels, torch.randint(0, classes, (count,)))
    spec = RunSpec.from_dict(
        {
            "topology": "1x1",
            "workload": "vit",
            "options": SMALL if asked.small else LARGE,
            "batch": asked.batch,
            "steps": asked.steps,
            "optimizer": "adamw",
            "lr": 0.0003,
            **way,
        }
    )
    data = Data(images, images, classes, (3, edge, edge), Preprocessing(1 / 255))
    began = time.perf_counter()
    training = TorchSession(spec, data, device)
    if spec.compile:
        training.compile()
    training.begin(0)

    def steps(number: int) -> float:
        start = time.perf_counter()
        for _ in range(number):
            training.step(Unwatched())
        training.settle()
        return time.perf_counter() - start

    steps(FIRST)
    tenth = time.perf_counter() - began
    spent = [steps(5) / 5 for _ in range(max(2, (asked.steps - FIRST) // 5))]
    memory = training.memory() / 2**30
    dist.destroy_process_group()
    return {"rate": asked.batch / statistics.median(spent), "tenth": tenth, "memory": memory}


if __name__ == "__main__":
    main()
