"""Build image files and folders for tests."""

import gzip
import pickle
import struct
from pathlib import Path

import numpy as np
from PIL import Image

from scalewise.frameworks.data import idx


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


def tiny_imagenet(root):
    """Write Tiny ImageNet's layout, two classes and a few images of it."""
    for name in ("n02", "n01"):
        for n in range(3):
            picture(root / "train" / name / "images" / f"{name}_{n}.JPEG", 64, 64, seed=n)
        (root / "train" / name / f"{name}_boxes.txt").write_text("n01_0.JPEG\t0\t0\t63\t63\n")
    for n in range(2):
        picture(root / "val" / "images" / f"val_{n}.JPEG", 64, 64, seed=5 + n)
    (root / "val" / "val_annotations.txt").write_text(
        "val_0.JPEG\tn02\t0\t32\t44\t62\nval_1.JPEG\tn01\t0\t0\t63\t63\n"
    )
    picture(root / "test" / "images" / "test_0.JPEG", 64, 64)
    return root


def cifar_batch(path, labels, key="labels", protocol=2, text=False):
    """Write a batch as CIFAR's authors did, with keys of bytes."""
    rows = np.random.default_rng(len(labels)).integers(0, 256, (len(labels), 3072), dtype=np.uint8)
    values = {"data": rows, key: list(labels), "batch_label": b"a batch"}
    named = values if text else {name.encode(): value for name, value in values.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(named, protocol))
    return rows


def idx_files(root, count=6, *, packed=False, height=5, held=None):
    chance = np.random.default_rng(0)
    for which, high in (("train", height), ("validation", held or height)):
        images = chance.integers(0, 256, (count, high, 4), dtype=np.uint8)
        labels = np.arange(count, dtype=np.uint8) % 3
        for name, values in ((f"{which} images", images), (f"{which} labels", labels)):
            head = struct.pack(f">{1 + values.ndim}I", 0x0800 + values.ndim, *values.shape)
            path = root / (idx.FILES[name] + (".gz" if packed else ""))
            content = head + values.tobytes()
            path.write_bytes(gzip.compress(content) if packed else content)
    return images
