"""The options that all scripts of this folder share."""

import argparse
import os

import torch

RANK = int(os.environ.get("RANK", "0"))
WORLD = int(os.environ.get("WORLD_SIZE", "1"))


def parse(*faults):
    """Read the arguments; ``--fault`` takes one of these names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=faults, default="")
    parser.add_argument(
        "--model", choices=("mlp", "statistics", "conv", "gpt", "lstm"), default="mlp"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--precision", choices=("fp32", "bf16", "bf16-weights"), default="fp32")
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--global-batch", type=int, default=32)
    parser.add_argument("--accumulate", type=int, default=1, help="micro-steps per step")
    parser.add_argument("--clip", type=float, default=0.0, help="the largest norm of the gradient")
    parser.add_argument("--padded", action="store_true", help="texts of several lengths")
    args = parser.parse_args()
    args.batch = args.global_batch // (WORLD * args.accumulate)
    return args


def autocast(args):
    return torch.autocast("cpu", torch.bfloat16, enabled=args.precision == "bf16")
