"""The meaning of a tag of TensorBoard, a column of a CSV log, or a key of a JSON line."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from scalewise.analysis.measure.logs.log import Observation, Quantity, epoch_number
from scalewise.analysis.measure.table_header import match_column

QUANTITIES: dict[str, tuple[Quantity, bool]] = {
    "throughput": ("throughput", False),
    "throughput_per_device": ("throughput", True),
    "steps_per_second": ("steps_per_second", False),
    "epoch_time": ("epoch_time", False),
    "step_time": ("step_time", False),
}
"""By role of a column: the quantity, and whether it is that of one device."""
WHOLE_RUN = {"train_samples_per_second", "train_runtime"}
"""Names of Hugging Face's Trainer that are given once, for the complete run."""
NOT_TRAINING = {"val", "valid", "validation", "test", "eval", "evaluation", "inference", "infer"}
MAX_NAME = 200


@dataclass(frozen=True, slots=True)
class TagMeaning:
    """What a tag's numbers are."""

    quantity: Quantity
    factor: float = 1.0
    unit: str | None = None
    per_device: bool = False
    whole_run: bool = False
    is_total: bool = False

    def observation(
        self, value: float, source: str, line: int | None = None, epoch: Any = None
    ) -> Observation:
        """Return a value of the tag; those of all devices are used before those of one."""
        return Observation(
            quantity=self.quantity,
            value=value * self.factor,
            source=source,
            line=line,
            rank=2 * self.per_device,
            epoch=epoch_number(epoch),
            per_device=self.per_device,
            whole_run=self.whole_run,
            is_total=self.is_total,
            unit=self.unit,
        )


@lru_cache(maxsize=4096)
def tag_meaning(tag: str) -> TagMeaning | None:
    """Return what a tag means; None if it is no rate or time of the training.

    >>> tag_meaning("perf/imgs_per_sec").unit, tag_meaning("train|device/items_per_sec").per_device
    ('images', True)
    >>> tag_meaning("val/throughput") is None
    True
    """
    if len(tag) > MAX_NAME:
        return None
    parts = [part for part in re.split(r"[/|.]", tag) if part.strip()]
    words = [word for part in parts for word in re.split(r"[_\s-]", part.lower())]
    if not parts or NOT_TRAINING & set(words):
        return None
    last = parts[-1].lower()
    if last == "train_runtime":
        return TagMeaning("time", whole_run=True)
    shorter = re.sub(r"^(?:epoch|batch)_", "", parts[-1])  # Keras: epoch_steps_per_second.
    for name in (parts[-1], " ".join(parts[-2:]), shorter):
        column = match_column(0, name)
        if column.role in QUANTITIES:
            quantity, per_device = QUANTITIES[column.role]
            is_device = per_device or (quantity == "throughput" and "device" in words)
            return TagMeaning(
                quantity,
                column.factor,
                column.unit if quantity == "throughput" else None,
                per_device=is_device,
                whole_run=last in WHOLE_RUN,
                is_total="total" in words,
            )
    return None
