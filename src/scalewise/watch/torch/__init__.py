"""Watch a PyTorch training script that nobody has changed.

inject (in ``probe``)   is run first by every Python of the program, and tells us of imports
hooks                   ask PyTorch to tell when a step's activities begin and end
quick                   those of them that every step passes, as lean as can be
discovery               finds the model of a plain loop, and its batch
tape                    keeps what the hooks tell, until many steps are understood at once
observer                makes optimizer steps, phases and samples of it
samples                 counts what a step is trained on
facts                   notes what silently ruins scaling
digests, frames, calls  what facts knows of batches and weights, of names, of calls of PyTorch
trace                   looks at a few steps with PyTorch's own profiler, where asked to
loaders                 times the training's loader alone, where asked to
private                 the only place that touches PyTorch's private names

Nothing is written before the first step. Whatever fails here switches the
watching off and lets the training go on.
"""

import os
from pathlib import Path
from types import ModuleType


def imported(name: str, module: ModuleType) -> None:
    """Put the hooks in, now that the program has imported this module."""
    from scalewise.watch.torch import hooks

    if name == "torch":
        hooks.install(Path(os.environ["SCALEWISE_RUN"]))
    else:
        hooks.extend(name, module)
