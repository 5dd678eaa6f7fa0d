"""Watch a Keras training script that nobody has changed, and give it the devices of its run.

TensorFlow sees as many devices as were asked for on a node: the first of its accelerators or,
without any, logical CPUs. ``fit`` and ``evaluate`` get a callback more, and what writes
checkpoints is timed. Whatever fails here switches the watching off and lets the training go on.
"""

import functools
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from scalewise.spec import RunSpec
from scalewise.watch.guest import spec_of, the_guest

SAVING = ("save", "save_weights")
"""Methods of a model that write checkpoints."""


def imported(name: str, module: Any) -> None:
    """Do what there is to do, now that the program has imported this module."""
    if name == "tensorflow":
        folder = Path(os.environ["SCALEWISE_RUN"])
        spec = spec_of(folder)
        if spec.framework == "tensorflow":
            the_guest(folder)
            share_out(module, spec)
    elif module.backend.backend() == "tensorflow":
        for each in ("fit", "evaluate"):
            _wrap(module, each, _with_callback)
        for each in SAVING:
            _wrap(module, each, _as_checkpoint)


def share_out(tf: Any, spec: RunSpec) -> None:
    """Let TensorFlow see the devices that were asked for, with as many threads as ours have."""
    asked = spec.topology.devices
    tf.config.threading.set_intra_op_parallelism_threads(spec.threads)
    there = tf.config.list_physical_devices("GPU")
    if there:
        tf.config.set_visible_devices(there[:asked], "GPU")
        if len(there) < asked:
            print(f"scalewise: {asked} devices were asked for, and TensorFlow sees {len(there)}",
                  file=sys.stderr)  # fmt: skip
        return
    tf.config.threading.set_inter_op_parallelism_threads(asked)
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * asked
    )


def _wrap(keras: ModuleType, name: str, around: Callable[..., Any]) -> None:
    """Put a function of ours around a method of all models."""
    model: Any = keras.Model
    original = getattr(model, name)
    signature = inspect.signature(original)

    @functools.wraps(original)
    def watched(*words: Any, **named: Any) -> Any:
        return around(original, signature, words, named)

    setattr(model, name, watched)


Words = tuple[Any, ...]
Named = dict[str, Any]


def _with_callback(
    original: Callable[..., Any], signature: inspect.Signature, words: Words, named: Named
) -> Any:
    """Call ``fit`` or ``evaluate`` with our callback before the program's own."""
    if _steps() is None:
        return original(*words, **named)
    try:
        call = _watched_call(signature.bind(*words, **named))
    except Exception as problem:
        _give_up(problem)
        return original(*words, **named)
    return original(*call.args, **call.kwargs)


def _watched_call(call: inspect.BoundArguments) -> inspect.BoundArguments:
    from keras.callbacks import CallbackList

    from scalewise.watch.keras.callback import Watch

    given = call.arguments.get("callbacks") or []
    own = list(given) if isinstance(given, (list, tuple)) else [given]
    # A whole CallbackList is another fit's own, or the program's: it is left as it is.
    if not any(isinstance(each, (Watch, CallbackList)) for each in own):
        call.arguments["callbacks"] = [Watch(), *own]
    return call


def _as_checkpoint(
    original: Callable[..., Any], signature: inspect.Signature, words: Words, named: Named
) -> Any:
    """Call what writes a checkpoint: its time is no time of a step."""
    _safely("pause")
    try:
        return original(*words, **named)
    finally:
        _safely("resume", "checkpoint")


def _safely(verb: str, *words: str) -> None:
    """Tell whoever counts the steps, if anybody does."""
    if (steps := _steps()) is not None:
        try:
            getattr(steps, verb)(*words)
        except Exception as problem:
            _give_up(problem)


_given_up = False


def _steps() -> Any:
    """Return who is told of the steps, while somebody watches."""
    try:
        from scalewise.watch.keras.callback import the_steps

        steps = None if _given_up else the_steps()
        return steps if steps is not None and steps.guest.on else None
    except Exception as problem:
        return _give_up(problem)


def _give_up(problem: Exception) -> None:
    """Watch no more; the program goes on."""
    global _given_up
    _given_up = True
    the_guest(Path(os.environ["SCALEWISE_RUN"])).switch_off(problem)
