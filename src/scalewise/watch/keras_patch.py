"""Watch an unchanged Keras training script, and limit it to the devices of its run.

TensorFlow sees as many devices as the run requests per node: the first of its accelerators or,
without any, logical CPUs. ``fit`` and ``evaluate`` get one more callback, and methods that write
checkpoints are timed. An error disables the watcher; the training continues.
"""

import functools
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from scalewise.probe.watcher import get_watcher, load_spec
from scalewise.spec import RunSpec

SAVE_METHODS = ("save", "save_weights")
"""Methods of a model that write checkpoints."""

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def imported(name: str, module: Any) -> None:
    """Install the patches for a module that the program has just imported."""
    if name == "tensorflow":
        folder = Path(os.environ["SCALEWISE_RUN"])
        spec = load_spec(folder)
        if spec.framework == "tensorflow":
            get_watcher(folder)
            limit_devices(module, spec)
    elif module.backend.backend() == "tensorflow":
        for method in ("fit", "evaluate"):
            _wrap(module, method, _with_callback)
        for method in SAVE_METHODS:
            _wrap(module, method, _as_checkpoint)


def limit_devices(tf: Any, spec: RunSpec) -> None:
    """Make only the requested devices visible to TensorFlow, with the run's number of threads."""
    requested = spec.topology.devices
    tf.config.threading.set_intra_op_parallelism_threads(spec.threads)
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[:requested], "GPU")
        if len(gpus) < requested:
            print(f"scalewise: the run requests {requested} devices, TensorFlow sees {len(gpus)}",
                  file=sys.stderr)  # fmt: skip
        return
    tf.config.threading.set_inter_op_parallelism_threads(requested)
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * requested
    )


def _wrap(keras: ModuleType, name: str, around: Callable[..., Any]) -> None:
    """Replace a method of ``keras.Model`` by one that calls ``around``."""
    model: Any = keras.Model
    original = getattr(model, name)
    signature = inspect.signature(original)

    @functools.wraps(original)
    def watched(*args: Any, **kwargs: Any) -> Any:
        return around(original, signature, args, kwargs)

    setattr(model, name, watched)


def _with_callback(
    original: Callable[..., Any], signature: inspect.Signature, args: Args, kwargs: Kwargs
) -> Any:
    """Call ``fit`` or ``evaluate`` with our callback before the program's own."""
    if _active_steps() is None:
        return original(*args, **kwargs)
    try:
        call = _add_callback(signature.bind(*args, **kwargs))
    except Exception as problem:
        _disable(problem)
        return original(*args, **kwargs)
    return original(*call.args, **call.kwargs)


def _add_callback(call: inspect.BoundArguments) -> inspect.BoundArguments:
    from keras.callbacks import CallbackList

    from scalewise.probe.tensorflow.callback import Watch

    callbacks = call.arguments.get("callbacks") or []
    callbacks = list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]
    # A CallbackList comes from an enclosing fit or from the program: it is not changed.
    if not any(isinstance(callback, (Watch, CallbackList)) for callback in callbacks):
        call.arguments["callbacks"] = [Watch(), *callbacks]
    return call


def _as_checkpoint(
    original: Callable[..., Any], signature: inspect.Signature, args: Args, kwargs: Kwargs
) -> Any:
    """Call a method that writes a checkpoint, as a pause between steps."""
    _safely("pause")
    try:
        return original(*args, **kwargs)
    finally:
        _safely("resume", "checkpoint")


def _safely(method: str, *args: str) -> None:
    """Call a method of the active ``Steps``, if watched; an error disables the watcher."""
    if (steps := _active_steps()) is not None:
        try:
            getattr(steps, method)(*args)
        except Exception as problem:
            _disable(problem)


_failed = False


def _active_steps() -> Any:
    """Return this process's ``Steps`` while the watcher is enabled, else None."""
    try:
        from scalewise.probe.tensorflow.callback import get_steps

        steps = None if _failed else get_steps()
        return steps if steps is not None and steps.watcher.enabled else None
    except Exception as problem:
        return _disable(problem)


def _disable(problem: Exception) -> None:
    """Stop watching; the program continues."""
    global _failed
    _failed = True
    get_watcher(Path(os.environ["SCALEWISE_RUN"])).disable(problem)
