"""Work around two faults of PyTorch's Gloo process group."""

import time

RELEASE_SECONDS = 0.05


def wait_for_release() -> None:
    """Let Gloo's threads release the tensors of the last collective, for which they need the GIL.

    A thread that does so later aborts a process whose interpreter has ended
    (https://github.com/pytorch/pytorch/issues/190489), or never ends: a DDP model that is freed
    after ``destroy_process_group`` waits for that thread and holds the GIL (PyTorch 2.13).
    """
    time.sleep(RELEASE_SECONDS)
