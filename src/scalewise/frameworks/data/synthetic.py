"""Images of nothing: a pattern for each class under noise, so that a model can learn them."""

import numpy as np
from PIL import Image

from scalewise.frameworks.data import Pixels

COARSE, FINE = 6, 24
"""Points of a class's pattern, and of the noise over it, along each side."""


def picture(seed: int, label: int, number: int, edge: int) -> Pixels:
    """Return one image of a class, the same for the same numbers."""
    pattern = np.random.default_rng([seed, label]).integers(0, 256, (COARSE, COARSE, 3))
    own = np.random.default_rng([seed, label, number + 1]).integers(0, 256, (FINE, FINE, 3))
    mixed = 0.6 * _smooth(pattern, edge) + 0.4 * _smooth(own, edge)
    return mixed.astype(np.uint8)


def _smooth(points: "np.ndarray[tuple[int, ...], np.dtype[np.int64]]", edge: int) -> Pixels:
    small = Image.fromarray(points.astype(np.uint8))
    return np.asarray(small.resize((edge, edge), Image.Resampling.BICUBIC))
