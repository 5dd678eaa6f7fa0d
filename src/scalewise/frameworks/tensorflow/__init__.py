"""TensorFlow with Keras 3. A check imports TensorFlow only if the run has workload options."""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from scalewise import plugins
from scalewise.errors import SpecError
from scalewise.frameworks import (
    TORCH_ONLY,
    Framework,
    Refused,
    Session,
    installed_version,
    refuse_fields,
    refuse_older,
    refuse_start,
)
from scalewise.frameworks.data_source import in_memory_source
from scalewise.frameworks.part_options import check_options, options_for
from scalewise.probe import Probe
from scalewise.spec import RunSpec

OLDEST = (2, 16)
"""Oldest supported version of TensorFlow: the first with Keras 3."""
PACKAGES = ("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tf-nightly")
"""Names of the packages that contain TensorFlow."""
MIN_EDGE = {"mnist-cnn": 6, "resnet50v2": 32, "resnet152v2": 32}
"""Smallest image edge of a workload, in pixels."""
REFUSED: Refused = {
    **TORCH_ONLY, "clip": None, "compile": ("blocks", "graphs"), "device": ("xpu",)
}  # fmt: skip
REASONS = {
    "parallelism": "the tensorflow framework splits no model",
    "compile": "TensorFlow compiles complete models only",
    "device": "the tensorflow framework computes on cpu or cuda",
}
"""Messages for some refused fields, in place of a general one."""


class TensorFlow(Framework):
    """Trains with TensorFlow: one process for all devices of a node, or one per device."""

    def check(self, spec: RunSpec) -> None:
        refuse_older("TensorFlow", _version(), OLDEST, hint="pip install --upgrade tensorflow")
        keras = installed_version("keras", extra="tensorflow")
        refuse_older("Keras", keras, (3,), hint="pip install --upgrade keras")
        refuse_cluster({**os.environ, **spec.env})
        plugins.find("strategies", spec.strategy, framework="tensorflow")
        refuse_start(spec.strategy, spec)
        if spec.traits.single_node and spec.topology.nodes > 1:
            raise SpecError(
                f"{spec.strategy} uses only one node, and this run has {spec.topology.nodes}",
                hint='write strategy = "multiworker"',
            )
        refuse_fields(spec, REFUSED, REASONS)
        workload = load_part("workloads", str(spec.workload))
        shape = _image_shape(spec)
        check_options(spec, workload)
        if options_for(workload, spec):  # Only Keras can check their values.
            _set_environment()
            import tensorflow as tf

            from scalewise.frameworks.tensorflow.session import build

            tf.config.set_visible_devices([], "GPU")  # A check needs no accelerator.
            build(spec, shape, 10)  # Any number of classes will do.

    def ranks(self, spec: RunSpec) -> Iterable[int]:
        refuse_cluster(os.environ)
        return super().ranks(spec)

    def facts(self) -> dict[str, Any]:
        _version()
        _set_environment()
        from scalewise.probe.tensorflow.devices import facts

        return facts()

    def session(self, spec: RunSpec, rank: int, probe: Probe) -> AbstractContextManager[Session]:
        _set_environment()
        from scalewise.frameworks.tensorflow.session import session

        return session(spec, rank, probe)


def __getattr__(name: str) -> Any:
    """Return ``Watch``, a Keras callback for users' programs; importing it imports Keras."""
    if name == "Watch":
        from scalewise.probe.tensorflow.callback import Watch

        return Watch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _set_environment() -> None:
    """Limit TensorFlow's log to errors, and make Keras use TensorFlow."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["KERAS_BACKEND"] = "tensorflow"


def load_part(kind: plugins.Kind, name: str) -> Callable[..., Any]:
    """Return the function that makes a strategy or a workload for TensorFlow."""
    function: Callable[..., Any] = plugins.load(kind, name, framework="tensorflow")
    return function


def refuse_cluster(env: Mapping[str, str]) -> None:
    """Refuse a TF_CONFIG that is already set: its workers are not the run's."""
    if "TF_CONFIG" in env:
        raise SpecError(
            "TF_CONFIG is already set, to workers that are not those of this run",
            hint="unset TF_CONFIG: scalewise makes it from the ranks of a run",
        )


def _version() -> str:
    for package in PACKAGES:
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return installed_version(PACKAGES[0], extra="tensorflow")  # Raises FrameworkMissing.


def _image_shape(spec: RunSpec) -> tuple[int, int, int]:
    """Return the shape of a run's images; refuse images that are too small for the model."""
    shape = in_memory_source(spec).shape
    assert not isinstance(shape, int)
    min_edge = MIN_EDGE.get(str(spec.workload), 1)
    if min(shape[1:]) < min_edge:
        raise SpecError(
            f"{spec.workload} needs images of {min_edge} pixels a side, and these have "
            f"{min(shape[1:])}",
            hint=f"write edge = {min_edge}",
        )
    return shape
