"""TensorFlow with Keras 3. This file imports neither: a run can be checked without them.

``Watch`` is the callback for a user's own script; accessing it imports Keras.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from scalewise import plugins
from scalewise.errors import SpecError
from scalewise.frameworks import Session, installed, refuse_older, refuse_start, too_few
from scalewise.frameworks.data_source import Source
from scalewise.frameworks.part_options import check_options, options_for
from scalewise.probe import HostClock, Probe
from scalewise.probe.rank_identity import required_rank
from scalewise.spec import Parallelism, RunSpec

OLDEST = (2, 16)
"""Oldest supported version of TensorFlow: the first with Keras 3."""
PACKAGES = ("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tf-nightly")
"""Names of the packages that contain TensorFlow."""
SUPPORTED_DATA = ("digits", "synthetic", "idx", "cifar")
"""Kinds of data that fit into memory."""
MIN_EDGE = {"mnist-cnn": 6, "resnet50v2": 32, "resnet152v2": 32}
"""Smallest image edge of a workload, in pixels."""


class TensorFlow:
    """Trains with TensorFlow: one process for all devices of a node, or one per device."""

    def check(self, spec: RunSpec) -> None:
        """Refuse a run that cannot work, before any rank starts."""
        refuse_older("TensorFlow", _version(), OLDEST, hint="pip install --upgrade tensorflow")
        keras = installed("keras", extra="tensorflow")
        refuse_older("Keras", keras, (3,), hint="pip install --upgrade keras")
        refuse_cluster(os.environ)
        refuse_cluster(spec.env)
        _refuse_start(spec)
        _refuse_fields(spec)
        shape = _refuse_data(spec)
        workload = part("workloads", str(spec.workload))
        check_options(spec, workload)
        if options_for(workload, spec):
            _build_on_cpu(spec, shape)

    def ranks(self, spec: RunSpec) -> Sequence[int]:
        """Return this process's rank, which its launcher set in the environment."""
        refuse_cluster(os.environ)
        return [required_rank(spec, os.environ)]

    def clock(self, spec: RunSpec) -> HostClock:
        """Return the host's clock: a step ends when its loss is on the host."""
        return HostClock()

    def facts(self) -> dict[str, Any]:
        """Return TensorFlow's version and devices."""
        _version()
        _set_environment()
        from scalewise.probe.tensorflow.devices import facts

        return facts()

    def session(self, spec: RunSpec, rank: int, probe: Probe) -> AbstractContextManager[Session]:
        """Set up a training on this process's devices."""
        _set_environment()
        from scalewise.frameworks.tensorflow.session import session

        return session(spec, rank, probe)


def __getattr__(name: str) -> Any:
    """Return the callback ``Watch``, a subclass of Keras's."""
    if name == "Watch":
        from scalewise.probe.tensorflow.callback import Watch

        return Watch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _set_environment() -> None:
    """Limit TensorFlow's log to errors, and make Keras use TensorFlow."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["KERAS_BACKEND"] = "tensorflow"


def part(kind: plugins.Kind, name: str) -> Callable[..., Any]:
    """Return one of TensorFlow's strategies or workloads."""
    function: Callable[..., Any] = plugins.load(kind, name, framework="tensorflow")
    return function


def refuse_cluster(env: Mapping[str, str]) -> None:
    """Refuse a TF_CONFIG that is already set: it describes other workers than the run's."""
    if "TF_CONFIG" in env:
        raise SpecError(
            "TF_CONFIG is set already, and names other workers than those of this run",
            hint="unset TF_CONFIG: scalewise makes it from the ranks of a run",
        )


def _version() -> str:
    for package in PACKAGES:
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return installed(PACKAGES[0], extra="tensorflow")


def _refuse_start(spec: RunSpec) -> None:
    plugins.find("strategies", spec.strategy, framework="tensorflow")
    refuse_start(spec.strategy, spec)
    if spec.traits.single_node and spec.topology.nodes > 1:
        raise SpecError(
            f"{spec.strategy} stays within a node, and this run has {spec.topology.nodes} of them",
            hint='write strategy = "multiworker"',
        )


def _refuse_fields(spec: RunSpec) -> None:
    """Refuse fields with values that TensorFlow runs do not support."""
    default = RunSpec(topology=spec.topology, batch=1, steps=1)
    for name in (
        "workers", "backend", "augment", "optimizer_step", "clip", "noise_every", "recompute",
        "ema", "sync_batchnorm", "checkpoint_every", "resume",
    ):  # fmt: skip
        if getattr(spec, name) != getattr(default, name):
            raise SpecError(
                f"the tensorflow framework has no {name}, and this run says "
                f"{getattr(spec, name)!r}",
                hint=f'leave {name} out, or write framework = "torch"',
            )
    if spec.parallelism != Parallelism():
        raise SpecError("the tensorflow framework splits no model", hint="leave parallelism out")
    if isinstance(spec.compile, str):
        raise SpecError(
            f"TensorFlow compiles a model whole, and this run says {spec.compile}",
            hint="write compile = true",
        )
    if spec.device == "xpu":
        raise SpecError(
            "the tensorflow framework computes on cpu or cuda, and this run says xpu",
            hint="leave device out",
        )


def _build_on_cpu(spec: RunSpec, shape: tuple[int, int, int]) -> None:
    """Build the model, so that Keras refuses wrong options; without an accelerator."""
    _set_environment()
    import tensorflow as tf

    from scalewise.frameworks.tensorflow.session import build

    tf.config.set_visible_devices([], "GPU")
    build(spec, shape, 10)


def _refuse_data(spec: RunSpec) -> tuple[int, int, int]:
    """Refuse data that are not supported or do not fit the model; return an image's shape."""
    source = Source.of_run(spec)
    if source.kind not in SUPPORTED_DATA or source.on_device:
        raise SpecError(
            f"the tensorflow framework does not read {spec.data!r}",
            hint='give MNIST\'s idx files, CIFAR\'s batches, "digits" or "synthetic:10000"',
        )
    if source.count and source.count < spec.replicas:
        raise too_few(source.count, spec.replicas)
    assert not isinstance(source.shape, int)
    min_edge = MIN_EDGE.get(str(spec.workload), 1)
    if min(source.shape[1:]) < min_edge:
        raise SpecError(
            f"{spec.workload} needs images of {min_edge} pixels a side, and these have "
            f"{min(source.shape[1:])}",
            hint=f"write edge = {min_edge}",
        )
    return source.shape
