"""Measure how fast the loader delivers batches, without training."""

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
"""More epochs than a benchmark ever runs."""


def bench_loader(
    request: Mapping[str, Any], report_progress: Callable[[int, int], None]
) -> dict[str, Any]:
    """Load batches as training does, with each number of workers; return their times and sizes."""
    specs = [_loader_spec(request, workers) for workers in request["workers"]]
    device, source = devices.bind(specs[0]), Source.of_run(specs[0])
    data = load(source, specs[0]).placed(device, source)
    rows: list[dict[str, Any]] = []
    unreadable: set[str] = set()
    for spec in specs:
        report_progress(len(rows), len(specs))
        (first, *seconds), samples, files = _time_batches(data, spec, device, request["seconds"])
        if not any(samples):
            hint = "`scalewise data check` lists the broken files and their problems"
            raise SpecError(f"no file of {spec.data} can be read", hint=hint)
        unreadable |= files
        times = {"first": first, "seconds": seconds, "read": samples[1:]}
        rows.append({"workers": spec.workers, **times})
    report_progress(len(rows), len(specs))
    return {
        "kind": source.kind,
        "device": devices.name(device),
        "samples": len(data.train),
        "shape": [data.shape] if isinstance(data.shape, int) else list(data.shape),
        "batch": min(request["batch"], len(data.train)),
        "rows": rows,
        "left_out": sorted(unreadable),
    }


def _loader_spec(request: Mapping[str, Any], workers: int) -> RunSpec:
    fields = {key: request[key] for key in ("data", "batch", "edge", "length", "augment")}
    # The loader does not use these fields, but a spec requires them.
    unused = {"topology": "1x1", "workload": "none"}
    epochs = {"epochs": MANY_EPOCHS, "validate_every": MANY_EPOCHS}
    return RunSpec.from_dict({**fields, **unused, **epochs, "workers": workers})


def _time_batches(
    data: Data, spec: RunSpec, device: torch.device, min_seconds: float
) -> tuple[list[float], list[int], set[str]]:
    """Return seconds and readable samples of at least three batches, and the unreadable files."""
    shards = Shards(len(data.train), spec, 0)
    start = last = time.perf_counter()
    sampler = PassSampler(shards, [], spec, shards.steps * MANY_EPOCHS)
    loader = BatchLoader(data, sampler, spec, device)
    seconds: list[float] = []
    samples: list[int] = []
    epoch, remaining = 0, 0
    while len(seconds) < 3 or last - start < min_seconds:
        if not remaining:
            loader.begin(Pass(epoch))
            epoch, remaining = epoch + 1, shards.steps
        _, labels = loader.next_batch()
        devices.settle(device)
        remaining -= 1
        now = time.perf_counter()
        seconds.append(now - last)
        samples.append(len(labels) - loader.skipped_samples)
        last = now
        if len(seconds) == 1:  # ``min_seconds`` begin after the start of the workers.
            start = now
    loader.close()
    return seconds, samples, loader.unreadable_files
