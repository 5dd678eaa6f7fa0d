"""What should be tuned on one device, before more of them are paid."""

from collections import Counter

from scalewise.analysis.explain.explain_text import duration
from scalewise.analysis.explain.watched_facts import Finding, WatchedRun

MIN_CORES_PER_THREAD = 4
"""Cores per thread from which cores are idle."""
MIN_INPUT_SHARE = 0.05
"""The share of a step from which waiting for input is worth workers."""
MIN_CAPABILITY = 8
"""The compute capability from which a device has TF32 and bf16."""
MIN_STEPS = 10
"""Steps below which a habit cannot be told from a single act."""


def threads(run: WatchedRun) -> Finding | None:
    """Cores that no thread uses, on a run without accelerator."""
    used = run.record.ranks[0].notes.threads
    cores = run.first.get("cores")
    if run.accelerated or not used or not cores:
        return None
    sharing = [
        rank.host == run.record.ranks[0].host
        and each.get("which_cores") == run.first["which_cores"]
        for rank, each in zip(run.record.ranks, run.facts, strict=True)
    ]
    own = cores // sum(sharing)
    if own < MIN_CORES_PER_THREAD * used:
        return None
    return Finding(
        "threads",
        "tune",
        f"Each rank computes with {used} thread{'s' if used > 1 else ''}, and there are {own} "
        "cores for each rank.",
        f"Set `threads = {own}` in a study file, or call `torch.set_num_threads({own})`.",
        run.devices,
    )


def unused_parameters(run: WatchedRun) -> Finding | None:
    """A search for unused parameters, where there are none."""
    searched = run.everywhere("searched")
    if not searched or any(each["unused"] for each in searched):
        return None
    return Finding(
        "unused parameters",
        "tune",
        f"DDP searches for unused parameters in each of {max(run.steps)} steps, and 0 were found: "
        "every parameter got a gradient.",
        "Leave out `find_unused_parameters=True`; with Transformers, set "
        "`ddp_find_unused_parameters=False`.",
        run.devices,
    )


def compiling(run: WatchedRun) -> Finding | None:
    """A model that runs as it is written."""
    if run.first.get("compiled") is not False:
        return None
    return Finding(
        "compile",
        "tune",
        f"Nothing is compiled: a step takes {duration(run.step_seconds)} as it is written.",
        "Try `model = torch.compile(model)` on one device; keep it if a step gets shorter.",
        run.devices,
    )


def precision(run: WatchedRun) -> Finding | None:
    """Matrix products in full fp32, on a device that knows better."""
    facts = run.first
    capability = facts.get("capability")
    if not capability or capability[0] < MIN_CAPABILITY or facts.get("dtype") != "float32":
        return None
    if facts.get("autocast") or facts.get("matmul") != "highest" or facts.get("tf32") is not False:
        return None
    version = ".".join(str(part) for part in capability)
    return Finding(
        "precision",
        "tune",
        "Matrix products run in full fp32, without autocast or TF32, on a device of compute "
        f"capability {version} that has both.",
        "Type `torch.set_float32_matmul_precision('high')`, or train under "
        "`torch.autocast('cuda', torch.bfloat16)`.",
        run.devices,
    )


def host_waits(run: WatchedRun) -> Finding | None:
    """A host that waits for the device in every step."""
    waits = run.first.get("waits") or {}
    steps = waits.get("to", 0) - waits.get("from", 0)
    if steps < 1 or waits.get("count", 0) < steps:
        return None
    where = f", mostly in {waits['where']}" if waits.get("where") else ""
    return Finding(
        "host waits",
        "tune",
        f"The host waits for the device {waits['count'] / steps:.3g} times per step{where}: "
        "`.item()`, `.cpu()`, `float(…)` or a comparison of a tensor.",
        "Read the loss only every 50 steps or so, and keep sums of it on the device until then.",
        run.devices,
    )


def loader_workers(run: WatchedRun) -> Finding | None:
    """A loader that prepares its batches between the steps."""
    if run.first.get("workers") != 0 or run.input_share < MIN_INPUT_SHARE:
        return None
    return Finding(
        "loader workers",
        "tune",
        f"The loader has no workers, and waiting for input is {100 * run.input_share:.0f} % of "
        "a step.",
        "Type `DataLoader(…, num_workers=2, persistent_workers=True)`, or more workers.",
        run.devices,
    )


def pinned_memory(run: WatchedRun) -> Finding | None:
    """Batches that cannot be copied while the device computes."""
    handed = run.first.get("handed")
    if not handed or not handed.get("pageable"):
        return None
    return Finding(
        "pinned memory",
        "tune",
        f"The loader hands over {handed['bytes'] / 1e6:.3g} MB per batch in memory that is not "
        "pinned: the host waits for every copy.",
        "Type `DataLoader(…, pin_memory=True)` and `x.to(device, non_blocking=True)`.",
        run.devices,
    )


def data_parallel(run: WatchedRun) -> Finding | None:
    """One process for all devices."""
    if not run.first.get("data_parallel"):
        return None
    return Finding(
        "DataParallel",
        "tune",
        "`nn.DataParallel` drives all devices from 1 process, and copies the model in every step.",
        "Use DistributedDataParallel, one process per device; `scalewise port` shows how.",
        run.devices,
    )


def shared_device(run: WatchedRun) -> Finding | None:
    """Ranks of a host on one accelerator."""
    places = Counter(
        (rank.host, each["accelerator"])
        for rank, each in zip(run.record.ranks, run.facts, strict=True)
        if each.get("accelerator")
    )
    if not places or max(places.values()) < 2:
        return None
    (host, _), count = places.most_common(1)[0]
    return Finding(
        "shared device",
        "tune",
        f"{count} ranks of host {host} compute on 1 accelerator.",
        "Give each its own: `torch.cuda.set_device(int(os.environ['LOCAL_RANK']))`.",
        run.devices,
    )


def empty_cache(run: WatchedRun) -> Finding | None:
    """An allocator that has to begin anew in every step."""
    emptied, steps = run.first.get("emptied") or 0, run.steps[0]
    if steps < MIN_STEPS or 2 * emptied < steps:
        return None
    return Finding(
        "empty cache",
        "tune",
        f"`torch.cuda.empty_cache()` is called {emptied} times in {steps} steps.",
        "Leave it out: freed memory is used again anyway, and emptying waits for the device.",
        run.devices,
    )
