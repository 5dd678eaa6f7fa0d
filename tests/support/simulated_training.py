"""A small network trained with numpy in certificate mode, right or with a known fault.

The network (two hidden layers, tanh, squared error) computes in float32, so that the order of sums
matters as it does on a device. ``train`` returns sketches as ranks would have recorded them.
"""

import math
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np

from scalewise.analysis.certify import SketchedRun
from scalewise.record.schema import LayerSketch, SketchSamples
from scalewise.record.sketches import LayerCopy

SKETCHED_STEPS = (0, 1, 2, 8, 9, 20)
PROJECTIONS = 8
MAX_ELEMENTS = 4096
LAYERS = ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "out.weight", "out.bias")


@dataclass(frozen=True)
class Training:
    """What is trained, and how; ``fault`` is what is wrong on several devices."""

    devices: int = 1
    fault: str = ""
    reverse: bool = False
    seed: int = 0
    optimizer: str = "sgd"
    batch_norm: bool = False
    clip: float | None = None
    precision: str = "fp32"
    accumulate: int = 1
    global_batch: int = 32
    samples: int = 1000
    steps: int = 24
    width: int = 48
    rate: float = 0.05

    def __post_init__(self) -> None:
        assert self.global_batch % (self.devices * self.accumulate) == 0


def sketch(name: str, vector: Any) -> LayerSketch:
    """Return the projections of a vector over at most 4,096 elements that its name decides."""
    flat = np.asarray(vector, dtype=np.float64).ravel()
    elements, signs = _projection(name, flat.size)
    chosen = flat[elements]
    return LayerSketch(tuple(map(float, signs @ chosen)), float(chosen @ chosen))


@cache
def _projection(name: str, size: int) -> tuple[Any, Any]:
    """Return which elements of a layer are used, and their signs in each projection."""
    seed = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")
    random = np.random.default_rng(seed)
    elements = random.permutation(size)[:MAX_ELEMENTS]
    return elements, random.choice([-1.0, 1.0], size=(PROJECTIONS, elements.size))


def certified(**changes: Any) -> tuple[SketchedRun, SketchedRun, SketchedRun]:
    """Return reference, reversed reference and candidate of a training with these settings."""
    candidate = Training(**{"devices": 2, **changes})
    alone = replace(candidate, devices=1, fault="", accumulate=1)
    return train(alone), train(replace(alone, reverse=True)), train(candidate)


def train(training: Training) -> SketchedRun:
    """Train as described, and return what the ranks would have recorded."""
    return _Simulation(training).run()


class _Simulation:
    def __init__(self, training: Training) -> None:
        self.training, self.fault = training, training.fault
        random = np.random.default_rng(training.seed)
        self.inputs = random.normal(size=(training.samples, 20)).astype(np.float32)
        self.inputs[:, 0] += np.linspace(0, 3, training.samples)  # Samples are not all alike.
        target = np.sin(self.inputs @ random.normal(size=(20, 3)))
        self.targets = target.astype(np.float32)
        self.weights = [self._start(rank) for rank in range(training.devices)]
        self.state: list[dict[str, Any]] = [{} for _ in range(training.devices)]
        self.buffers = [np.zeros(training.width) for _ in range(training.devices)]
        self.kept: list[dict[str, Any]] = [{} for _ in range(training.devices)]
        self.layers: dict[Any, dict[str, tuple[LayerCopy, ...]]] = {}
        self.taken: list[dict[int, SketchSamples]] = [{} for _ in range(training.devices)]
        self.counts: list[dict[int, int]] = [{} for _ in range(training.devices)]
        self.lengths: dict[int, float] = {}

    def _start(self, rank: int) -> dict[str, Any]:
        seed = (self.training.seed, rank if self.fault == "start weights" else 0)
        random, width = np.random.default_rng(seed), self.training.width
        shapes = [(20, width), (width,), (width, width), (width,), (width, 3), (3,)]
        weights = [random.normal(size=shape) / math.sqrt(shape[0]) for shape in shapes]
        weights[3] *= 0  # A bias that begins with zeros.
        return {name: weight.astype(np.float32) for name, weight in zip(LAYERS, weights)}

    def run(self) -> SketchedRun:
        for step in range(self.training.steps):
            self._step(step)
        training = self.training
        return SketchedRun(
            label=f"mlp on 1x{training.devices}",
            devices=training.devices,
            layers=self.layers,
            samples=self.taken,
            sample_counts=self.counts,
            lengths=self.lengths,
            replicas=training.devices,
            accumulate=training.accumulate,
            precision=training.precision,
            batch_norm=("fc1.norm",) if training.batch_norm else (),
            is_reversed=training.reverse,
        )

    def _batch(self, step: int, devices: int) -> list[Any]:
        """Return the indices of the samples of each rank."""
        training, batch = self.training, self.training.global_batch
        per_epoch = math.ceil(training.samples / batch)
        if self.fault == "dropped last batch":
            per_epoch = training.samples // batch
        epoch, position = divmod(step, per_epoch)
        if self.fault == "order repeats":
            epoch = 0
        order = np.random.default_rng(epoch).permutation(training.samples)
        chosen = order[position * batch : (position + 1) * batch]
        if self.fault == "short first step" and step == 0:
            chosen = chosen[: batch // 2]
        if self.fault == "same samples":
            return [chosen[: batch // devices]] * devices
        if training.reverse:
            chosen = chosen[::-1]
        return [chosen[rank::devices] for rank in range(devices)]

    def _step(self, step: int) -> None:
        training, devices = self.training, self.training.devices
        batches = self._batch(step, devices)
        local = [self._local(rank, batches[rank]) for rank in range(devices)]
        gradients = self._exchange(local, batches)
        if self.fault == "kept gradients":
            self.kept = gradients = [
                {name: value + kept.get(name, 0) for name, value in each.items()}
                for each, kept in zip(gradients, self.kept)
            ]
        if training.clip and self.fault != "clipped early":
            gradients = [self._clipped(each) for each in gradients]
        updates = [self._update(rank, gradients[rank], step) for rank in range(devices)]
        is_sketched = step in SKETCHED_STEPS
        for rank, batch in enumerate(batches):
            self.counts[rank][step] = len(batch)
            hashes = sorted(f"{index:016x}" for index in batch)
            if is_sketched:
                self.taken[rank][step] = SketchSamples(step, len(batch), hashes)
        if step == 0 or step - 1 in SKETCHED_STEPS:
            self._record(step, "weight", self.weights)
        if is_sketched:
            self._record(step, "gradient", gradients)
            self.lengths[step] = _length(gradients[0])
            self._record(step, "update", updates)
        for rank in range(devices):
            share = np.float32(0.3 if self.fault == "averaged weights" else 1.0)
            self.weights[rank] = {
                name: self.weights[rank][name] + share * updates[rank][name] for name in LAYERS
            }
        if step == SKETCHED_STEPS[-1]:
            self._record(step, "buffer", [{"mean": buffer} for buffer in self.buffers])

    def _record(self, step: int, kind: str, by_rank: list[dict[str, Any]]) -> None:
        self.layers[step, kind] = {
            name: tuple(
                LayerCopy((rank,), sketch(name, vectors[name]))
                for rank, vectors in enumerate(by_rank)
            )
            for name in by_rank[0]
        }

    def _local(self, rank: int, batch: Any) -> dict[str, Any]:
        """Return the gradient of one rank: the mean over its micro-steps."""
        parts = np.array_split(batch, self.training.accumulate)
        if self.fault == "last micro-step lost":
            parts = parts[:-1]
        gradients = [self._backward(rank, part) for part in parts]
        divisor = 1 if self.fault == "accumulation" else self.training.accumulate
        return {name: _total(gradients, name) / np.float32(divisor) for name in LAYERS}

    def _backward(self, rank: int, batch: Any) -> dict[str, Any]:
        weights, inputs = self.weights[rank], self._rounded(self.inputs[batch])
        first = inputs @ self._rounded(weights["fc1.weight"]) + weights["fc1.bias"]
        if self.training.batch_norm:
            center = first.mean(axis=0)
            spread = np.sqrt(first.var(axis=0) + np.float32(1e-5))
            first = (first - center) / spread
        if self.fault == "buffers" or rank == 0:
            mean = first.mean(axis=0) if self.fault == "buffers" else self.inputs.mean()
            self.buffers[rank] = 0.9 * self.buffers[rank] + 0.1 * mean
        else:
            self.buffers[rank] = self.buffers[0]
        hidden = np.tanh(self._rounded(first))
        second = np.tanh(hidden @ self._rounded(weights["fc2.weight"]) + weights["fc2.bias"])
        output = second @ weights["out.weight"] + weights["out.bias"]
        error = (2 * (output - self.targets[batch]) / np.float32(output.size)).astype(np.float32)
        to_second = (error @ weights["out.weight"].T) * (1 - second**2)
        to_first = (self._rounded(to_second) @ weights["fc2.weight"].T) * (1 - hidden**2)
        if self.training.batch_norm:
            along = (to_first * first).mean(axis=0)
            to_first = (to_first - to_first.mean(axis=0) - first * along) / spread
        gradients = {
            "fc1.weight": _product(inputs, self._rounded(to_first)),
            "fc1.bias": _row_sum(to_first),
            "fc2.weight": _product(hidden, self._rounded(to_second)),
            "fc2.bias": _row_sum(to_second),
            "out.weight": _product(second, error),
            "out.bias": _row_sum(error),
        }
        return {name: self._rounded(gradient) for name, gradient in gradients.items()}

    def _rounded(self, values: Any) -> Any:
        """Return values as bf16 has them, if this is the precision."""
        if self.training.precision != "bf16":
            return values
        bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
        return ((bits + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32)

    def _exchange(self, local: list[dict[str, Any]], batches: list[Any]) -> list[dict[str, Any]]:
        """Return the gradients that each rank's optimizer gets."""
        devices, fault = len(local), self.fault
        if devices == 1:
            return local
        if fault == "clipped early":
            local = [self._clipped(each) for each in local]
        divisor = {"summed": 1, "averaged twice": devices**2}.get(fault, devices)
        mean = {name: _total(local, name) / np.float32(divisor) for name in LAYERS}
        if fault == "not synchronised":
            return local
        if fault == "one layer not synchronised":
            return [{**mean, "fc2.weight": each["fc2.weight"]} for each in local]
        if fault == "one layer summed":
            mean["fc2.bias"] = mean["fc2.bias"] * np.float32(devices)
        if fault == "zero layer":
            mean["fc2.weight"] = mean["fc2.weight"] * 0
        sizes = np.array([len(batch) for batch in batches])
        if fault != "uneven batch" and len({*sizes}) > 1:
            shares = (sizes / sizes.sum()).astype(np.float32)
            return [
                {name: sum(s * each[name] for s, each in zip(shares, local)) for name in LAYERS}
            ] * devices
        return [mean] * devices

    def _clipped(self, gradients: dict[str, Any]) -> dict[str, Any]:
        limit = self.training.clip or math.inf
        factor = np.float32(min(1.0, limit / _length(gradients)))
        return {name: value * factor for name, value in gradients.items()}

    def _update(self, rank: int, gradients: dict[str, Any], step: int) -> dict[str, Any]:
        rate = np.float32(self.training.rate)
        devices = self.training.devices
        if self.fault == "learning rate":
            rate = rate * np.float32(devices)
        decay = np.float32(0.01 * (devices if self.fault == "weight decay" else 1))
        updates = {}
        for name, gradient in gradients.items():
            weight = self.weights[rank][name]
            if self.training.optimizer == "adam":
                first, second = self.state[rank].get(name, (0 * gradient, 0 * gradient))
                first = np.float32(0.9) * first + np.float32(0.1) * gradient
                second = np.float32(0.999) * second + np.float32(0.001) * gradient**2
                self.state[rank][name] = (first, second)
                center = first / np.float32(1 - 0.9 ** (step + 1))
                spread = np.sqrt(second / np.float32(1 - 0.999 ** (step + 1))) + np.float32(1e-8)
                gradient = np.float32(0.02) * center / spread
            changed = weight - rate * (gradient + decay * weight)
            updates[name] = changed - weight
        if self.fault == "updates differ" and rank == 1:
            updates["fc2.weight"] = updates["fc2.weight"] * np.float32(2)
        if self.fault == "not updated":
            updates["fc2.weight"] = updates["fc2.weight"] * 0
        return updates


def _length(gradients: dict[str, Any]) -> float:
    return math.sqrt(sum(float((value.astype(float) ** 2).sum()) for value in gradients.values()))


def _total(gradients: list[dict[str, Any]], name: str) -> Any:
    total = gradients[0][name]
    for gradient in gradients[1:]:
        total = total + gradient[name]
    return total


def _row_sum(values: Any) -> Any:
    """Return the sum of rows, one after another: its rounding depends on their order."""
    total = np.zeros(values.shape[1], dtype=np.float32)
    for row in values:
        total = total + row.astype(np.float32)
    return total


def _product(left: Any, right: Any) -> Any:
    """Return ``left.T @ right``, summed over samples one after another."""
    total = np.zeros((left.shape[1], right.shape[1]), dtype=np.float32)
    for one, other in zip(left.astype(np.float32), right.astype(np.float32)):
        total = total + np.outer(one, other)
    return total
