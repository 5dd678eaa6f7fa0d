"""Recognize loops that train on a batch of sequences stretch by stretch, one step for each.

Truncated backpropagation through time does so. All stretches together are the batch, so its samples
count once. A batch that is trained on again as a whole is none of this: it counts again.
"""

from collections import deque

import torch

from scalewise.watch.torch.discovery import first_size

RECENT_BATCHES = 4


class Stretches:
    """Compares the inputs of a model with the loader's newest batch."""

    def __init__(self) -> None:
        self.rows = 0
        """The first size of the batch's first tensor; 0 if unknown."""
        self.recent_rows: deque[int] = deque(maxlen=RECENT_BATCHES)
        """The rows of the newest batches: the program may read ahead."""
        self.in_use = False
        """Whether such a loop was seen."""
        self._is_time_first = False
        """Whether the model's input has the time first and the batch does not."""
        self._length = self._elements = self._used = 0
        """The second size of that tensor, its elements, and how many of them were used."""
        self._has_stepped = False
        """Whether an optimizer has stepped since the batch was first used."""

    @property
    def compares_always(self) -> bool:
        """Whether an input alone does not show how many samples a step has: every batch and every
        input is compared.
        """
        return self.in_use or self._is_time_first

    def begin_batch(self, tensor: torch.Tensor | None, rows: int | None) -> None:
        """Note a batch that a loader gave; its first tensor is compared if it has its rows."""
        self._used, self._has_stepped = 0, False
        self.rows = self._length = self._elements = 0
        if tensor is not None and rows is not None and rows == first_size(tensor):
            self.rows = rows
            self.recent_rows.append(rows)
            if not tensor.is_nested and tensor.dim() > 1:
                self._length, self._elements = tensor.size(1), tensor.numel()

    def end_step(self) -> None:
        """Note an optimizer's step."""
        self._has_stepped = self._used > 0

    def call(self, rows: int | None, tensor: torch.Tensor | None) -> tuple[int | None, bool]:
        """Return the rows of a model's input, and whether it continues the batch of a step before.

        If the input has the time first and the batch does not, its rows are its second size.
        """
        if tensor is None or tensor.is_nested or tensor.dim() < 2 or not self._elements:
            return rows, False
        if self.rows not in (tensor.size(0), self._length) and tensor.dim() > 2:
            self._is_time_first |= tensor.size(1) == self.rows
            rows = self.rows if tensor.size(1) == self.rows else rows
        # A batch of numbers that stand for categories may be encoded outside of the model.
        encoded = tensor.size(-1) if tensor.numel() > self._elements else 1
        used = tensor.numel() // max(encoded, 1)
        fits = self._used > 0 and self._used + used <= self._elements
        self._used += used
        continues = fits and rows == self.rows and (self._has_stepped or self.in_use)
        self.in_use |= continues and self._has_stepped
        return rows, continues
