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
from scalewise.probe.torch import gloo
from scalewise.spec import RunSpec

MAX_LISTED_FILES = 100
"""The number of unreadable files that a rank lists in its record; its log lists all of them."""


@contextmanager
def session(spec: RunSpec, rank: int, probe: Probe) -> Iterator[TorchSession]:
    """Set up a training run and, at the end, tear it down. The probe times the parts of both."""
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
        say("data           is on the device: no batch is loaded or copied")
    with probe.span("build"):
        training = TorchSession(spec, data, device)
        # All ranks drew the same weights; from here on (dropout) each rank has its own seed.
        torch.manual_seed(((spec.seed + spec.repeat) << 20) + rank)
        if spec.certify:
            from scalewise.frameworks.torch.certificate import record_sketches

            record_sketches(training, spec, len(data.train), probe)
    with devices.prefer_cudnn_attention(device):
        if spec.compile:
            with probe.span("compile"):
                training.compile()
            _report_compiled_graphs(spec, rank, probe, device)
        if device.type != "cpu":
            probe.use(devices.EventClock(device))
        yield training
    if unreadable := training.unreadable_files():
        probe.note(left_out={"count": len(unreadable), "paths": unreadable[:MAX_LISTED_FILES]})
    with probe.span("shutdown"):
        training.close()
        dist.barrier()
        if backend == "gloo":
            gloo.wait_for_release()
        dist.destroy_process_group()


def _load_data(spec: RunSpec, device: torch.device) -> Data:
    """Load the run's data set. Only one rank does slow work, such as listing or unpacking files."""
    source = Source.of_run(spec)
    if source.kind == "images":  # ``load`` lists the folder on rank 0 and broadcasts the list.
        data = load(source, spec)
    else:
        # The first rank of a node may prepare files; its other ranks then only read them.
        is_first = int(os.environ.get("LOCAL_RANK", "0")) == 0
        prepared = load(source, spec) if is_first else None
        dist.barrier()
        data = prepared or load(source, spec)
    return data.placed(device, source)


def _report_compiled_graphs(spec: RunSpec, rank: int, probe: Probe, device: torch.device) -> None:
    """Report how many graphs were compiled or cached, and how many cannot be CUDA graphs."""
    if graphs := block_compile.graph_counts():
        probe.note(compiled=graphs)
        if rank == 0:
            say(f"compiled       {graphs['made']} graphs; {graphs['found']} more from the cache")
    uses_cuda_graphs = spec.compile == "graphs" and device.type != "cpu"
    if uses_cuda_graphs and rank == 0 and (skipped := block_compile.skipped_cuda_graphs()):
        say(f"compiled       {skipped} graphs cannot be CUDA graphs and launch single kernels")
