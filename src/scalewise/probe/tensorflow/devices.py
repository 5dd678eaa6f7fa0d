"""The devices of this process, and its memory."""

import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tensorflow as tf

from scalewise.errors import SpecError
from scalewise.spec import RunSpec


def bind(spec: RunSpec) -> list[str]:
    """Return the names of this process's devices; no others are visible to it.

    CPUs are logical: as many as the topology says, with one thread each that starts operations,
    which take ``threads`` of them.
    """
    many = spec.topology.devices if spec.started_by == "node" else 1
    local = 0 if spec.started_by == "node" else int(os.environ.get("LOCAL_RANK", "0"))
    tf.config.threading.set_intra_op_parallelism_threads(spec.threads)
    there = tf.config.list_physical_devices("GPU")
    if spec.device == "cuda" and not there:
        raise SpecError(
            "the study asks for cuda, and this TensorFlow finds no such device here",
            hint='`scalewise doctor` shows what is here; device = "cpu" needs none',
        )
    if there and spec.device != "cpu":
        return _accelerators(there, local, many)
    tf.config.set_visible_devices([], "GPU")
    tf.config.threading.set_inter_op_parallelism_threads(many)
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * many)
    return [f"CPU:{n}" for n in range(many)]


def _accelerators(there: list[Any], local: int, many: int) -> list[str]:
    mine = there[local : local + many]
    if len(mine) < many:
        raise SpecError(
            f"this process needs {local + many} devices, and {len(there)} are visible",
            hint='use fewer devices per node, or device = "cpu"',
        )
    tf.config.set_visible_devices(mine, "GPU")
    for each in mine:
        tf.config.experimental.set_memory_growth(each, True)  # noqa: FBT003 - no name
    return [f"GPU:{n}" for n in range(many)]


def name(names: list[str]) -> str:
    """Return what this process's first device is called."""
    if names[0].startswith("CPU"):
        return "cpu"
    (first, *_) = tf.config.get_visible_devices("GPU")
    return str(tf.config.experimental.get_device_details(first).get("device_name", first.name))


def peak_memory(names: list[str]) -> int | None:
    """Return the peak bytes of this process: on its accelerators, or resident."""
    if names[0].startswith("GPU"):
        return sum(int(tf.config.experimental.get_memory_info(each)["peak"]) for each in names)
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError):
        return None


def facts() -> dict[str, Any]:
    """Return TensorFlow's version and devices."""
    found = tf.config.list_physical_devices("GPU")
    details = [tf.config.experimental.get_device_details(each) for each in found]
    return {
        "name": "tensorflow",
        "version": tf.__version__,
        "keras": version("keras"),
        "cuda": tf.sysconfig.get_build_info().get("cuda_version"),
        "devices": [each.get("device_name", "gpu") for each in details] or ["cpu"],
    }
