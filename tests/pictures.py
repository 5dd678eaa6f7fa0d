"""Build image files and folders for tests."""

from pathlib import Path

import numpy as np
from PIL import Image


def scene(width=40, height=30, seed=0):
    """Return pixels that are neither flat nor noise: a smooth random surface."""
    points = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(points).resize((width, height), Image.Resampling.BICUBIC))


def photograph(width, height, seed=0):
    """Return pixels with detail at every scale and muted colours, as photographs have."""
    chance = np.random.default_rng(seed)
    total, points = np.full((height, width, 3), 128.0), 4
    while points <= width:
        small = chance.normal(0, 90 / points**0.45, (points, points, 3))
        small = 1.4 * small.mean(axis=2, keepdims=True) + 0.2 * small
        bands = [Image.fromarray(band.astype(np.float32)) for band in np.moveaxis(small, 2, 0)]
        total += np.stack([np.asarray(each.resize((width, height))) for each in bands], axis=2)
        points *= 2
    return total.clip(0, 255).astype(np.uint8)


def picture(path, width=40, height=30, *, mode="RGB", seed=0, **how):
    """Write an image file, its format by the ending of its name."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(scene(width, height, seed))
    if Path(path).suffix == ".webp":
        how["lossless"] = True
    image.convert(mode).save(path, **how)
    return path


def image_folder(root, classes=("ant", "bee"), train=3, val=2, **how):
    """Write an image folder with a few images of each class."""
    for part, count in (("train", train), ("val", val)):
        for label, name in enumerate(classes):
            for n in range(count):
                seed = 1000 * label + 10 * n + (part == "val")
                picture(root / part / name / f"{name}_{n}.jpg", seed=seed, **how)
    return root
