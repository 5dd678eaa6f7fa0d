"""MFU of ViT-H/14 and GPT-1.3B on one accelerator, from counted operations and by hand.

    python benchmarks/mfu.py [--steps 40]

Each trains some steps through ``scalewise run`` in bf16 with compiled blocks, on made-up data;
``scalewise measure`` prints what the record says. The operations of one sample are also counted
here by hand, from the shapes of the model alone. Exits with 1 where they are more than 1 % apart.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

STUDY = """
name = "{name}"
[run]
workload = "{workload}"
data = "{data}"
batch = {batch}
steps = {steps}
precision = "bf16"
compile = {compile}
optimizer_step = "{optimizer}"
lr = 0.0001
[vary]
topology = ["1x1"]
"""
OFF = 0.01


def transformer(width: int, depth: int, tokens: int) -> int:
    """Return the operations of the blocks, forward and backward, a multiply and an add as two.

    A token meets 12 width² weights in each block; attention multiplies queries with keys and
    weights with values, tokens² × width each. Causal attention is counted in full.
    """
    forward = depth * (2 * tokens * 12 * width**2 + 2 * 2 * tokens**2 * width)
    return 3 * forward


def vit_h14(classes: int) -> int:
    """Return the operations of an image of 224²: 256 patches of 14 × 14 × 3, and the class."""
    # Nothing learns from the gradient of the image, so patches go two thirds of the way.
    patches = 2 * 256 * (14 * 14 * 3) * 1280 * 2
    return transformer(1280, 32, 257) + patches + 3 * 2 * 1280 * classes


def gpt(length: int, vocabulary: int) -> int:
    """Return the operations of a sequence through the decoder and its last layer."""
    return transformer(2048, 24, length) + 3 * 2 * length * 2048 * vocabulary


LARGE = {
    "vit-h14": ("synthetic-on-device:2560x224x224x3", 128, vit_h14(10)),
    "gpt-1.3b": ("tokens:64x2048x50304", 8, gpt(2048, 50304)),
}


def main() -> None:
    """Train both, print what is measured, and compare with the hand count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40)
    asked = parser.parse_args()
    missed = False
    with tempfile.TemporaryDirectory() as home:
        for workload, (data, batch, by_hand) in LARGE.items():
            study = Path(home, f"{workload}.toml")
            given = {"name": workload, "workload": workload, "data": data, "batch": batch}
            fast = {"compile": '"blocks"', "optimizer": "fused", "steps": asked.steps}
            study.write_text(STUDY.format(**given, **fast), encoding="utf-8")
            folder = Path(home, workload)
            subprocess.run(["scalewise", "run", study, "-o", folder], check=True)
            subprocess.run(["scalewise", "measure", folder], check=True)
            told = subprocess.run(
                ["scalewise", "measure", folder, "--json"], check=True, capture_output=True
            )
            point = json.loads(told.stdout)["curves"][0]["points"][0]
            off = point["flops"] / by_hand - 1
            missed |= abs(off) > OFF
            mfu = point["mfu"]["value"] if point["mfu"] else None
            print(
                f"{workload}: counted {point['flops']:,}, by hand {by_hand:,}, {off:+.3%}; "
                f"{point['throughput']['value']:,.1f} samples/s, "
                f"{point['flops_per_second']['value'] / 1e12:,.1f} TFLOP/s, "
                f"MFU {'unknown' if mfu is None else f'{mfu:.1%}'}",
                flush=True,
            )
    sys.exit("the counts differ" if missed else 0)


if __name__ == "__main__":
    main()
