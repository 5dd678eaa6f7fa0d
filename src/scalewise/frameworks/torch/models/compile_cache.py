"""Share the cache of torch.compile between the runs of a study."""

import os
from pathlib import Path
from typing import Any

VARIABLES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
CACHE_FOLDER = ".compiled"


def use_study_cache(study: Path) -> None:
    """Let the compiler cache its kernels in a study's folder.

    Its default folder may be deleted with the job. Variables that are set already stay.
    """
    for name, folder in VARIABLES.items():
        os.environ.setdefault(name, str((study / CACHE_FOLDER / folder).absolute()))


def skipped_cuda_graphs() -> int:
    """Return the number of graphs that cannot be replayed as CUDA graphs."""
    from torch._dynamo.utils import counters

    return int(counters["inductor"]["cudagraph_skips"])


def graph_counts() -> dict[str, int] | None:
    """Return the number of graphs from the cache ("found") and of compiled ones ("made").

    None if this version of PyTorch does not count them.
    """
    try:
        from torch._dynamo.utils import counters
    except ImportError:
        return None
    counts: Any = counters["inductor"]
    return {
        "found": int(counts["fxgraph_cache_hit"]),
        "made": int(counts["fxgraph_cache_miss"] + counts["fxgraph_cache_bypass"]),
    }
