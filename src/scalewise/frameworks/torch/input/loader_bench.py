"""How fast data comes, with nobody who trains on it."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from scalewise.errors import SpecError
from scalewise.frameworks.data_source import Source
from scalewise.frameworks.sampler import Shards
from scalewise.frameworks.torch.input.data_sets import Data, load
from scalewise.frameworks.torch.input.loader import BatchLoader, Pass, PassSampler
from scalewise.probe.torch import device as devices
from scalewise.spec import RunSpec

MANY_EPOCHS = 10**6
"""Epochs: more than anyone waits for."""


def bench_loader(asked: Mapping[str, Any], tell: Callable[[int, int], None]) -> dict[str, Any]:
    """Load as a training on this machine's device would; return each batch's seconds and samples.

    The first one of each number of workers is told apart: it is their start.
    """
    specs = [_spec(asked, workers) for workers in asked["workers"]]
    device, source = devices.bind(specs[0]), Source.of_run(specs[0])
    data = load(source, specs[0]).near(device, source)
    rows: list[dict[str, Any]] = []
    lost: set[str] = set()
    for spec in specs:
        tell(len(rows), len(specs))
        (first, *seconds), read, broken = _timed(data, spec, device, asked["seconds"])
        if not any(read):
            raise SpecError(
                f"no file of {spec.data} can be read",
                hint="`scalewise data check` names every one, and what is wrong with it",
            )
        lost |= broken
        rows.append({"workers": spec.workers, "first": first, "seconds": seconds, "read": read[1:]})
    tell(len(rows), len(specs))
    return {
        "kind": source.kind,
        "device": devices.name(device),
        "samples": len(data.train),
        "shape": [data.shape] if isinstance(data.shape, int) else list(data.shape),
        "batch": min(asked["batch"], len(data.train)),
        "rows": rows,
        "left_out": sorted(lost),
    }


def _spec(asked: Mapping[str, Any], workers: int) -> RunSpec:
    said = {key: asked[key] for key in ("data", "batch", "edge", "length", "augment")}
    # Only what the loader looks at matters.
    rest = {
        "topology": "1x1",
        "workload": "none",
        "epochs": MANY_EPOCHS,
        "validate_every": MANY_EPOCHS,
    }
    return RunSpec.from_dict({**said, **rest, "workers": workers})


def _timed(
    data: Data, spec: RunSpec, device: torch.device, most: float
) -> tuple[list[float], list[int], set[str]]:
    """Return each batch's seconds and samples that count, and the files that cannot be read.

    It goes on until ``most`` seconds after the first; there are three at least.
    """
    shards = Shards(len(data.train), spec, 0)
    began = last = time.perf_counter()
    feed = BatchLoader(
        data, PassSampler(shards, [], spec, shards.steps * MANY_EPOCHS), spec, device
    )
    seconds: list[float] = []
    read: list[int] = []
    epoch, left = 0, 0
    while len(seconds) < 3 or last - began < most:
        if not left:
            feed.begin(Pass(epoch))
            epoch, left = epoch + 1, shards.steps
        _, labels = feed.take()
        devices.settle(device)
        left -= 1
        now = time.perf_counter()
        seconds.append(now - last)
        read.append(len(labels) - feed.lost)
        last = now
        if len(seconds) == 1:
            began = now
    feed.close()
    return seconds, read, feed.broken
