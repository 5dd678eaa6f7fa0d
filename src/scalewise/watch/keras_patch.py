"""Watch an unchanged Keras training script, and limit it to the devices of its run.

``fit`` and ``evaluate`` get a callback that times steps. Methods that write checkpoints are timed.
"""

import functools
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scalewise.probe.watcher import find_watcher, get_watcher, load_spec
from scalewise.spec import RunSpec

Method = Callable[..., Any]


def on_import(name: str, module: Any) -> None:
    """Install the patches for a module that the program has just imported."""
    if name == "tensorflow":
        folder = Path(os.environ["SCALEWISE_RUN"])
        spec = load_spec(folder)
        if spec.framework == "tensorflow":
            get_watcher(folder)  # It must exist from now on, to record the time to the first step.
            limit_devices(module, spec)
    elif module.backend.backend() == "tensorflow":  # The module is Keras.
        for method in ("fit", "evaluate"):
            setattr(module.Model, method, _with_callback(getattr(module.Model, method)))
        for method in ("save", "save_weights"):
            setattr(module.Model, method, _timed_checkpoint(getattr(module.Model, method)))


def limit_devices(tf: Any, spec: RunSpec) -> None:
    """Let TensorFlow see only the devices that the run requests, and use the run's threads."""
    from scalewise.probe.tensorflow.devices import use_logical_cpus

    requested = spec.topology.devices
    tf.config.threading.set_intra_op_parallelism_threads(spec.threads)
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[:requested], "GPU")
    else:
        use_logical_cpus(requested)
    if 0 < len(gpus) < requested:
        print(f"scalewise: the run requests {requested} devices, TensorFlow sees {len(gpus)}",
              file=sys.stderr)  # fmt: skip


def _with_callback(original: Method) -> Method:
    """Return ``fit`` or ``evaluate`` with our callback ``Watch`` before the program's own."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def watched(*args: Any, **kwargs: Any) -> Any:
        if (recorder := _step_recorder()) is None:
            return original(*args, **kwargs)
        try:
            from keras.callbacks import CallbackList

            from scalewise.probe.tensorflow.callback import Watch

            call = signature.bind(*args, **kwargs)
            callbacks = call.arguments.get("callbacks") or []
            callbacks = list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]
            # A CallbackList belongs to an enclosing fit, which we time, or to the program.
            if not any(isinstance(callback, (Watch, CallbackList)) for callback in callbacks):
                call.arguments["callbacks"] = [Watch(), *callbacks]
            args, kwargs = call.args, call.kwargs
        except Exception as problem:
            recorder.watcher.disable(problem)
        return original(*args, **kwargs)

    return watched


def _timed_checkpoint(original: Method) -> Method:
    """Return a method that writes a checkpoint, wrapped so that it is recorded as a checkpoint."""

    @functools.wraps(original)
    def watched(*args: Any, **kwargs: Any) -> Any:
        _call_recorder("pause")
        try:
            return original(*args, **kwargs)
        finally:
            _call_recorder("resume", "checkpoint")

    return watched


def _call_recorder(method: str, *args: str) -> None:
    """Call a method of the recorder of steps, if there is one; an error disables the watcher."""
    if (recorder := _step_recorder()) is not None:
        try:
            getattr(recorder, method)(*args)
        except Exception as problem:
            recorder.watcher.disable(problem)


def _step_recorder() -> Any:
    """Return the recorder of this process's steps, or None if the process is not measured."""
    watcher = find_watcher()
    if watcher is None or not watcher.enabled:
        return None
    try:
        from scalewise.probe.tensorflow.callback import get_steps

        return get_steps()
    except Exception as problem:
        watcher.disable(problem)
        return None
