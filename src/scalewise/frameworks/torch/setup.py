"""Set up a training run on one rank: process group, data, model, compiler; and tear it down."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

from scalewise.frameworks.data_source import Source
from scalewise.frameworks.torch.input.data_sets import Data, load
from scalewise.frameworks.torch.models import block_compile
from scalewise.frameworks.torch.session import TorchSession
from scalewise.frameworks.train_log import say
from scalewise.probe import Probe
from scalewise.probe.torch import device as devices
from scalewise.spec import RunSpec

MAX_LISTED_FILES = 100
"""Unreadable files that a rank lists in its record; its log has all."""


@contextmanager
def session(spec: RunSpec, rank: int, probe: Probe) -> Iterator[TorchSession]:
    """Set up a training run, its spans recorded by the probe, and tear it down at the end."""
    if spec.compile:
        block_compile.use_study_cache(probe.folder.parent)
    device = devices.bind(spec)
    backend, reason = devices.backend(spec, device)
    probe.note(device=devices.name(device), backend=backend, threads=torch.get_num_threads())
    if rank == 0:
        say(f"backend        {backend}: {reason}")
    with probe.span("rendezvous"):
        dist.init_process_group(backend)
        dist.barrier()
    with probe.span("data"):
        data = _load_data(spec, device)
    if data.on_device and rank == 0:
        say("data           lies on the device: nothing loads or travels")
    with probe.span("build"):
        training = TorchSession(spec, data, device)
        # The weights are drawn alike on all ranks; from here on (dropout) each has its own seed.
        torch.manual_seed((spec.seed + spec.repeat << 20) + rank)
    with devices.attention(device):
        if spec.compile:
            with probe.span("compile"):
                training.compile()
            _report_compiled_graphs(spec, rank, probe, device)
        if device.type != "cpu":
            probe.use(devices.EventClock(device))
        yield training
    if unreadable := training.left_out():
        probe.note(left_out={"count": len(unreadable), "paths": unreadable[:MAX_LISTED_FILES]})
    with probe.span("shutdown"):
        training.close()
        dist.barrier()
        dist.destroy_process_group()


def _load_data(spec: RunSpec, device: torch.device) -> Data:
    """Load the run's data set; one rank does the slow part for the others."""
    source = Source.of_run(spec)
    if source.kind == "images":
        data = load(source, spec)
    else:
        # The first rank of a node may have to prepare files, which the others then only read.
        is_first = int(os.environ.get("LOCAL_RANK", "0")) == 0
        prepared = load(source, spec) if is_first else None
        dist.barrier()
        data = prepared or load(source, spec)
    return data.near(device, source)


def _report_compiled_graphs(spec: RunSpec, rank: int, probe: Probe, device: torch.device) -> None:
    """Record how many graphs were compiled, came from the cache, or cannot be replayed."""
    if graphs := block_compile.graph_counts():
        probe.note(compiled=graphs)
        if rank == 0:
            say(f"compiled       {graphs['made']} graphs anew, {graphs['found']} found")
    uses_cuda_graphs = spec.compile == "graphs" and device.type != "cpu"
    if uses_cuda_graphs and rank == 0 and (skipped := block_compile.skipped_cuda_graphs()):
        say(f"compiled       {skipped} of them cannot be replayed, only started bit by bit")
