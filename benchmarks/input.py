"""How quickly one core reads images, beside what torchvision's ImageFolder does.

    python benchmarks/input.py [IMAGES] [ROUNDS]

Three ways to a batch of 64: the usual one, by hand (PIL opens, converts, resizes and
crops; then a float tensor, normalized, stacked); ours from the same files (bytes into
one array); ours from packed images. Ours leave the step from bytes to floats to the
device; what that takes on a core, for a whole batch, is printed last. Batches alternate
in seeded order, so that a busy moment meets all. Printed are images per second of
processor time, and ratios of medians. The files are in memory: this is the processor's
part, not the disk's. Exits with 1 when a claim does not hold.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from scalewise.frameworks.data.image_folder import Listing
from scalewise.frameworks.data.make_data import Recipe, make_data_set
from scalewise.frameworks.data.packed import Packed
from scalewise.frameworks.data.pixels import decode_image

BATCH, EDGE = 64, 224
CLAIMS = {"files": 1.5, "packed": 3.0}
SCENES = 16
"""Different images; more files than that are copies."""
SIZES = ((224, 224), (500, 375), (1024, 768))
MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
SPREAD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


def main() -> None:
    """Measure each size of file, and compare with what we claim."""
    torch.set_num_threads(1)
    images = int(sys.argv[1]) if len(sys.argv) > 1 else 256
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    missed = False
    for size in SIZES:
        with tempfile.TemporaryDirectory() as home:
            ways = prepared(Path(home), size, images)
            seconds = alternated(ways, images, rounds)
        usual = statistics.median(seconds["usual"])
        print(f"{size[0]} × {size[1]} JPEGs to {EDGE}², {len(seconds['usual'])} batches each")
        for name, taken in seconds.items():
            median = statistics.median(taken)
            claim = CLAIMS.get(name)
            words = f"  {usual / median:5.2f} times, claim {claim}" if claim else ""
            print(f"  {name:<7} {BATCH / median:8.0f} images/s on one core{words}")
            missed |= claim is not None and usual / median < claim
    sys.exit("a claim does not hold" if missed else 0)


def prepared(
    home: Path, size: tuple[int, int], images: int
) -> dict[str, Callable[[list[int]], object]]:
    """Write files of one size, pack them, and return the three ways to a batch."""
    for split, count in (("train", images), ("val", 1)):
        (home / "files" / split / "one").mkdir(parents=True)
        for n in range(count):
            path = home / "files" / split / "one" / f"{n:05d}.jpg"
            Image.fromarray(scene(size, n % SCENES)).save(path, quality=90)
    listing = Listing.of(home / "files")
    make_data_set(
        Recipe(home / "packed", EDGE, source=home / "files", packed=True), lambda *_: None, 1
    )
    rows = Packed.of(home / "packed").train
    paths = [listing.path(listing.train, n) for n in range(images)]
    batch = np.empty((BATCH, EDGE, EDGE, 3), np.uint8)

    def files(indices: list[int]) -> object:
        for row, n in zip(batch, indices):
            decode_image(paths[n], EDGE, out=row)
        return torch.from_numpy(batch)

    return {
        "usual": lambda indices: torch.stack([usual(paths[n]) for n in indices]),
        "files": files,
        "packed": lambda indices: torch.from_numpy(rows.read(indices, batch)),
        "floats": lambda _: normalized(torch.from_numpy(batch)),
    }


def normalized(batch: torch.Tensor) -> torch.Tensor:
    """Make of bytes what a model wants, at once for all: a device's work, here a core's."""
    floats = batch.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format)
    return floats.sub_(255 * MEAN).div_(255 * SPREAD)


def usual(path: str) -> torch.Tensor:
    """Do what ImageFolder with Resize, CenterCrop, ToTensor and Normalize does."""
    with open(path, "rb") as file:
        image = Image.open(file).convert("RGB")
    width, height = image.size
    short = min(width, height)
    if short != EDGE:
        size = int(EDGE * width / short), int(EDGE * height / short)
        image = image.resize(size, Image.Resampling.BILINEAR)
    left, top = round((image.width - EDGE) / 2), round((image.height - EDGE) / 2)
    if left or top:
        image = image.crop((left, top, left + EDGE, top + EDGE))
    pixels = torch.from_numpy(np.array(image, np.uint8, copy=True))
    tensor = pixels.permute(2, 0, 1).contiguous().to(torch.float32).div(255)
    return tensor.clone().sub_(MEAN).div_(SPREAD)


def alternated(
    ways: dict[str, Callable[[list[int]], object]], images: int, rounds: int
) -> dict[str, list[float]]:
    """Return the seconds of each batch, by way."""
    chance = random.Random(0)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way([n % images for n in range(BATCH)])
    for _ in range(rounds):
        order = chance.sample(range(images), images)
        for start in range(0, images - BATCH + 1, BATCH):
            for name in chance.sample(list(ways), len(ways)):
                began = time.process_time()
                ways[name](order[start : start + BATCH])
                seconds[name].append(time.process_time() - began)
    return seconds


@cache
def scene(size: tuple[int, int], seed: int) -> np.ndarray:
    """Return an image with detail at every scale, whose JPEG is as large as a photograph's."""
    chance = np.random.default_rng(seed)
    width, height = size
    total = np.zeros((height, width, 3))
    points = 4
    while points <= width:
        small = chance.normal(0, 90 / points**0.45, (points * height // width, points, 3))
        grey = small.mean(axis=2, keepdims=True)
        total += np.stack([_smooth(band, size) for band in np.moveaxis(0.2 * small, 2, 0)], axis=2)
        total += _smooth(1.4 * grey[:, :, 0], size)[:, :, None]
        points *= 2
    return (128 + total).clip(0, 255).astype(np.uint8)


def _smooth(points: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    small = Image.fromarray(points.astype(np.float32))
    return np.asarray(small.resize(size, Image.Resampling.BICUBIC))


if __name__ == "__main__":
    main()
