"""What the compiler made, kept for the runs of a study that come after."""

import os
from pathlib import Path
from typing import Any

VARIABLES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
CACHE_FOLDER = ".compiled"


def use_study_cache(study: Path) -> None:
    """Have the compiler keep what it makes in a study's folder.

    Elsewhere it would be gone with a job's own temporary folder. Whoever sets the
    compiler's own variables is obeyed.
    """
    for name, folder in VARIABLES.items():
        os.environ.setdefault(name, str((study / CACHE_FOLDER / folder).absolute()))


def skipped_cuda_graphs() -> int:
    """Return how many graphs could not be recorded, and are started kernel by kernel."""
    from torch._dynamo.utils import counters

    return int(counters["inductor"]["cudagraph_skips"])


def graph_counts() -> dict[str, int] | None:
    """Return how many graphs were there already and how many were compiled anew.

    Nothing where this version of PyTorch does not count them.
    """
    try:
        from torch._dynamo.utils import counters
    except ImportError:
        return None
    counted: Any = counters["inductor"]
    return {
        "found": int(counted["fxgraph_cache_hit"]),
        "made": int(counted["fxgraph_cache_miss"] + counted["fxgraph_cache_bypass"]),
    }
