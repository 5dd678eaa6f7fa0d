"""Facts of ranks that no guard reports, and one faulty case per guard with its sentence."""

from typing import Any

STEPS = 40


def weights(*sums: float, step: int = 32, shapes: str = "one") -> dict[str, Any]:
    seen = {"step": step, "sums": list(sums), "sizes": [10.0] * len(sums)}
    return {"shapes": shapes, "seen": [seen]}


def healthy(rank: int) -> dict[str, Any]:
    """Return the facts of a rank on a CPU, of which no guard has anything to say."""
    return {
        "rank": rank,
        "samples": [f"{batch} of rank {rank}" for batch in range(3)],
        "loads": True,
        "passes": {"count": 3, "epochs": 3},
        "weights": weights(1.0, 2.0),
        "optimizer": "SGD",
        "rate": 0.1,
        "highest_rate": 0.1,
        "compiled": True,
        "autocast": False,
        "dtype": "float32",
        "workers": 2,
        "emptied": 0,
        "data_parallel": False,
        "sharded": False,
        "split": False,
        "cores": 2,
        "which_cores": "all",
        "accelerator": None,
    }


CUDA = {"accelerator": "GPU-1", "capability": [9, 0], "matmul": "highest", "tf32": False}
"""What an accelerator of today adds; a model in bf16 has nothing to gain there."""


SAME = {"samples": ["a", "b", "c"]}


FAULTY = {
    "same samples": {"facts": SAME},
    "no exchange": {"facts": SAME | {"exchanged": False}},
    "repeated samples": {"facts": {"epoch_samples": 10_000}},
    "lost samples": {"facts": {"epoch_samples": 2_500}},
    "drift": {"by_rank": ({}, {"weights": weights(1.5, 2.0)})},
    "step counts": {"steps": (40, 30)},
    "set_epoch": {"facts": {"passes": {"count": 3, "epochs": 1}}},
    "DataParallel": {"devices": 1, "facts": {"data_parallel": True}},
    "shared device": {"facts": CUDA | {"dtype": "bfloat16"}},
    "threads": {"facts": {"cores": 16}},
    "loader workers": {"facts": {"workers": 0}, "waited": 0.004},
    "pinned memory": {"facts": {"handed": {"bytes": 1_200_000, "pageable": True}}},
    "host waits": {"facts": {"waits": {"from": 5, "to": 25, "count": 20, "where": "train.py:3"}}},
    "empty cache": {"facts": {"emptied": STEPS}},
    "unused parameters": {"facts": {"searched": {"unused": 0}}},
    "precision": {"devices": 1, "facts": CUDA},
    "compile": {"facts": {"compiled": False}},
}


SAID = {
    "same samples": "2 of 2 ranks read the same samples: their first 3 training batches are equal",
    "no exchange": "every process trains alone; all 2 ranks train on the same samples",
    "repeated samples": "An epoch covers 20,000 samples, and on 1 device 10,000: every rank",
    "lost samples": "An epoch covers 5,000 samples, and on 1 device 10,000",
    "drift": "after step 32 the weights of rank 1 differ from those of rank 0 by 5 %",
    "step counts": "rank 1 took 30, rank 0 took 40",
    "set_epoch": "All 3 passes over the data had the same order",
    "shared device": "2 ranks of host here compute on 1 accelerator",
    "threads": "Each rank computes with 1 thread, and there are 8 cores for each rank",
    "loader workers": "waiting for input is 40 % of a step",
    "pinned memory": "1.2 MB per batch",
    "host waits": "1 times per step, mostly in train.py:3",
    "empty cache": "called 40 times in 40 steps",
    "unused parameters": "in each of 40 steps, and 0 were found",
    "precision": "compute capability 9.0",
    "compile": "an eager step takes 10 ms",
}
