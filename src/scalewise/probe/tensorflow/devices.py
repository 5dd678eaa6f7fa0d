"""The devices of this process, and its memory."""

import os
from importlib.metadata import version
from typing import Any

import tensorflow as tf

from scalewise.errors import SpecError
from scalewise.probe.environment import peak_resident_bytes
from scalewise.spec import RunSpec


def bind(spec: RunSpec) -> list[str]:
    """Make only this process's devices visible; return their names. A CPU becomes several."""
    count = spec.topology.devices if spec.started_by == "node" else 1
    first_index = 0 if spec.started_by == "node" else int(os.environ.get("LOCAL_RANK", "0"))
    tf.config.threading.set_intra_op_parallelism_threads(spec.threads)
    gpus = tf.config.list_physical_devices("GPU")
    if spec.device == "cuda" and not gpus:
        raise SpecError(
            "the study asks for cuda, and this TensorFlow finds no such device here",
            hint='`scalewise doctor` shows the devices; device = "cpu" needs no accelerator',
        )
    if gpus and spec.device != "cpu":
        own_gpus = gpus[first_index : first_index + count]
        if len(own_gpus) < count:
            raise SpecError(
                f"this process needs {first_index + count} devices, and {len(gpus)} are visible",
                hint='use fewer devices per node, or device = "cpu"',
            )
        tf.config.set_visible_devices(own_gpus, "GPU")
        for gpu in own_gpus:
            tf.config.experimental.set_memory_growth(gpu, True)  # noqa: FBT003 - no name
        return [f"GPU:{n}" for n in range(count)]
    tf.config.set_visible_devices([], "GPU")
    use_logical_cpus(count)
    return [f"CPU:{n}" for n in range(count)]


def use_logical_cpus(count: int) -> None:
    """Divide the CPU into ``count`` logical devices, with one inter-op thread for each."""
    tf.config.threading.set_inter_op_parallelism_threads(count)
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * count
    )


def name(names: list[str]) -> str:
    """Return the model name of the first of these devices, such as "NVIDIA H100"."""
    if names[0].startswith("CPU"):
        return "cpu"
    (first, *_) = tf.config.get_visible_devices("GPU")
    return str(tf.config.experimental.get_device_details(first).get("device_name", first.name))


def peak_memory(names: list[str]) -> int:
    """Return the peak memory of this process in bytes: on its GPUs or, without GPUs, resident."""
    if names[0].startswith("GPU"):
        return sum(int(tf.config.experimental.get_memory_info(name)["peak"]) for name in names)
    return peak_resident_bytes()


def facts() -> dict[str, Any]:
    """Return TensorFlow's version and devices."""
    gpus = tf.config.list_physical_devices("GPU")
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    return {
        "name": "tensorflow",
        "version": tf.__version__,
        "keras": version("keras"),
        "cuda": tf.sysconfig.get_build_info().get("cuda_version"),
        "devices": [detail.get("device_name", "gpu") for detail in details] or ["cpu"],
    }
