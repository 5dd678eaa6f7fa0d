"""Guards of tuning: faults that slow training down, to be fixed before paying for more devices."""

from collections import Counter

from scalewise.analysis.explain.guards.guard import WatchedRun, guard
from scalewise.analysis.number_format import format_count, format_seconds
from scalewise.record.schema import HostWaits

MIN_CORES_PER_THREAD = 4
"""From this many cores per thread on, cores count as unused."""
MIN_INPUT_SHARE = 0.05
"""Waiting for input is reported from this share of a step on."""
MIN_CAPABILITY = 8
"""The first major compute capability with TF32 and bf16."""
MIN_STEPS = 10
"""With fewer steps, calls in every step cannot be distinguished from occasional ones."""


@guard("DataParallel", "tune")
def data_parallel(run: WatchedRun) -> tuple[str, str] | None:
    """One process for all devices."""
    if not run.rank0.data_parallel:
        return None
    return (
        "`nn.DataParallel` drives all devices from 1 process, and copies the model in every step.",
        "Use DistributedDataParallel, one process per device; `scalewise port` shows how.",
    )


@guard("shared device", "tune")
def shared_device(run: WatchedRun) -> tuple[str, str] | None:
    """Several ranks of a host on one accelerator."""
    accelerators = Counter(
        (rank.host, facts.accelerator)
        for rank, facts in zip(run.record.ranks, run.facts, strict=True)
        if facts.accelerator
    )
    if not accelerators or max(accelerators.values()) < 2:
        return None
    (host, _), count = accelerators.most_common(1)[0]
    return (
        f"{count} ranks of host {host} compute on 1 accelerator.",
        "Give each rank its own: `torch.cuda.set_device(int(os.environ['LOCAL_RANK']))`.",
    )


@guard("threads", "tune")
def threads(run: WatchedRun) -> tuple[str, str] | None:
    """Cores that no thread uses, in a run without an accelerator."""
    thread_count = run.record.ranks[0].notes.threads
    cores = run.rank0.cores
    if run.rank0.accelerator is not None or not thread_count or not cores:
        return None
    ranks_on_cores = sum(
        rank.host == run.record.ranks[0].host and facts.core_set == run.rank0.core_set
        for rank, facts in zip(run.record.ranks, run.facts, strict=True)
    )
    per_rank = cores // ranks_on_cores
    if per_rank < MIN_CORES_PER_THREAD * thread_count:
        return None
    return (
        f"Each rank computes with {format_count(thread_count, 'thread')}, and there are {per_rank} "
        "cores for each rank.",
        f"Set `threads = {per_rank}` in a study file, or call `torch.set_num_threads({per_rank})`.",
    )


@guard("loader workers", "tune")
def loader_workers(run: WatchedRun) -> tuple[str, str] | None:
    """A loader without workers, which prepares its batches between the steps."""
    if run.rank0.workers != 0 or run.input_share < MIN_INPUT_SHARE:
        return None
    return (
        f"The loader has no workers, and waiting for input is {100 * run.input_share:.0f} % of "
        "a step.",
        "Use `DataLoader(…, num_workers=2, persistent_workers=True)`, or more workers.",
    )


@guard("pinned memory", "tune")
def pinned_memory(run: WatchedRun) -> tuple[str, str] | None:
    """Batches in pageable memory, which cannot be copied while the device computes."""
    batch = run.rank0.loaded_batch
    if not batch or not batch.pageable:
        return None
    return (
        f"The loader hands over {batch.bytes / 1e6:.3g} MB per batch in memory that is not "
        "pinned: the host waits for every copy.",
        "Use `DataLoader(…, pin_memory=True)` and `x.to(device, non_blocking=True)`.",
    )


@guard("host waits", "tune")
def host_waits(run: WatchedRun) -> tuple[str, str] | None:
    """A host that waits for the device in every step."""
    waits = run.rank0.host_waits or HostWaits()
    steps = waits.last_step - waits.first_step  # Waits are counted in a few early steps.
    if steps < 1 or waits.count < steps:
        return None
    where = f", mostly in {waits.line}" if waits.line else ""
    return (
        f"The host waits for the device {waits.count / steps:.3g} times per step{where}: "
        "`.item()`, `.cpu()`, `float(…)` or a comparison of a tensor.",
        "Read the loss only every 50 steps or so, and keep sums of it on the device until then.",
    )


@guard("empty cache", "tune")
def empty_cache(run: WatchedRun) -> tuple[str, str] | None:
    """An allocator cache that is emptied at least in every second step."""
    emptied, steps = run.rank0.emptied_caches or 0, run.steps[0]
    if steps < MIN_STEPS or 2 * emptied < steps:
        return None
    return (
        f"`torch.cuda.empty_cache()` is called {emptied} times in {steps} steps.",
        "Leave it out: freed memory is used again anyway, and emptying waits for the device.",
    )


@guard("unused parameters", "tune")
def unused_parameters(run: WatchedRun) -> tuple[str, str] | None:
    """A search for unused parameters where there are none."""
    searches = [facts.unused_parameters for facts in run.facts]
    if any(search is None or search.count for search in searches):
        return None
    return (
        f"DDP searches for unused parameters in each of {max(run.steps)} steps, and 0 were found: "
        "every parameter got a gradient.",
        "Leave out `find_unused_parameters=True`; with Transformers, set "
        "`ddp_find_unused_parameters=False`.",
    )


@guard("precision", "tune")
def precision(run: WatchedRun) -> tuple[str, str] | None:
    """Matrix products in full fp32 on a device that has faster formats."""
    facts = run.rank0
    capability = facts.capability
    if not capability or capability[0] < MIN_CAPABILITY or facts.dtype != "float32":
        return None
    if facts.autocast or facts.matmul_precision != "highest" or facts.tf32 is not False:
        return None
    version = ".".join(str(part) for part in capability)
    return (
        "Matrix products run in full fp32, without autocast or TF32, on a device of compute "
        f"capability {version} that has both.",
        "Call `torch.set_float32_matmul_precision('high')`, or train under "
        "`torch.autocast('cuda', torch.bfloat16)`.",
    )


@guard("compile", "tune")
def not_compiled(run: WatchedRun) -> tuple[str, str] | None:
    """A model that is not compiled."""
    if run.rank0.compiled is not False:
        return None
    step = run.window.seconds / run.window.steps
    return (
        f"Nothing is compiled: an eager step takes {format_seconds(step)}.",
        "Try `model = torch.compile(model)` on one device; keep it if a step gets shorter.",
    )
