"""Parse a run's ``data`` field, and check that the data exists; needs no framework."""

import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from scalewise.errors import PluginError, SpecError
from scalewise.spec import RunSpec
from scalewise.validate import path_exists, suggest_name, suggest_path

Kind = Literal[
    "digits", "synthetic", "synthetic tokens", "packed", "cifar", "idx", "tokens", "images"
]
Shape = tuple[int, int, int] | int
"""Channels, height and width of an image, or the tokens of a sequence."""
LENGTH = 64
"""Default tokens per sample."""
EDGE = 224
"""Default edge, in pixels, to which the images of a folder are resized."""
VOCABULARY = 36
"""Default vocabulary of synthetic tokens."""
MAX_VOCABULARY = 10_000_000
"""For synthetic tokens; ten times that of any model. The generator draws a value per token."""


@dataclass(frozen=True, slots=True)
class Source:
    """A data set: the embedded digits, a synthetic one, or files in one of the known formats."""

    kind: Kind
    path: Path = Path()
    count: int = 0
    """Samples of a synthetic set."""
    shape: Shape = 0
    """The shape of one sample as the model sees it."""
    vocabulary: int = VOCABULARY
    """Vocabulary of synthetic tokens."""
    on_device: bool = False
    """Whether a synthetic set is generated on the device, so that no input is transferred."""

    @classmethod
    def of_run(cls, spec: RunSpec) -> "Source":
        """Return the data of a run; refuse data that does not exist.

        The default is the embedded digits, or synthetic tokens for a language model.
        """
        default = "tokens:10000" if str(spec.workload).startswith("gpt") else "digits"
        return cls.of(spec.data or default, edge=spec.edge, length=spec.length)

    @classmethod
    def of(cls, data: str, *, edge: int | None = None, length: int | None = None) -> "Source":
        """Parse a run's ``data`` field.

        >>> Source.of("synthetic:1000").shape
        (1, 28, 28)
        """
        kind = data.partition(":")[0]
        if data == "digits":
            if find_spec("sklearn") is None:
                raise PluginError(
                    "the embedded digits come with scikit-learn, which is not installed",
                    hint="pip install scikit-learn beside the framework, or give "
                    'data = "synthetic:10000"',
                )
            return cls("digits", shape=_square(1, 8, edge))
        if kind in ("synthetic", "synthetic-on-device"):
            return _parse_synthetic(data)
        if kind == "tokens":
            return _parse_tokens(data)
        return _find_files(data, edge, length)


def refuse_crop(source: Source, augment: str) -> None:
    """Refuse random crops of data other than an image folder: its images have one small size."""
    if augment == "crop" and source.kind != "images":
        name = source.path if source.path.name else "the data"
        raise SpecError(
            f'augment = "crop" is for folders of images, and {name} is {source.kind}',
            hint='write augment = "flip"',
        )


def _square(channels: int, default_edge: int, edge: int | None) -> Shape:
    return channels, edge or default_edge, edge or default_edge


def _find_files(data: str, edge: int | None, length: int | None) -> Source:
    """Return the data set at a path, in the format that its files have."""
    path = Path(data).expanduser()
    if not path_exists(path):
        raise SpecError(
            f"there is no data {data}",
            hint=suggest_name(data, ["digits"])
            or suggest_path(path)
            or "give a folder of images, packed images, CIFAR's batches or MNIST's idx files, a "
            'text or token file, "digits", "synthetic:10000" or "tokens:10000"',
        )
    from scalewise.frameworks.data import cifar, tokens
    from scalewise.frameworks.data.kinds import kind_of

    kind = kind_of(path)
    if kind == "tokens":
        tokens.refuse_short(path, length or LENGTH)
        return Source("tokens", path, shape=length or LENGTH)
    if kind == "images":
        return Source("images", path, shape=_square(3, EDGE, edge))
    if kind == "cifar":
        cifar.refuse_empty(path)
        return Source("cifar", path, shape=_square(3, 32, edge))
    if kind == "packed":
        return Source("packed", path, shape=_packed_shape(path, data, edge))
    return Source("idx", path, shape=_idx_shape(path, data, edge))


def _packed_shape(path: Path, data: str, edge: int | None) -> Shape:
    from scalewise.frameworks.data.packed import Packed

    packed = Packed.of(path)
    if edge not in (None, packed.edge):
        raise SpecError(
            f"{data} is packed at {packed.edge} pixels, and this run says edge {edge}",
            hint=f"leave edge out, or pack it again with --edge {edge}",
        )
    return _square(3, packed.edge, None)


def _idx_shape(path: Path, data: str, edge: int | None) -> Shape:
    from scalewise.frameworks.data import idx

    height, width = idx.image_size(path, "train")
    validation = idx.image_size(path, "validation")
    if edge is None and validation != (height, width) and height != width:
        raise SpecError(
            f"{data} has training images of {width}x{height} and validation images of "
            f"{validation[1]}x{validation[0]}",
            hint=f"write edge = {height}: all are resized to {height}x{height}",
        )
    return 1, edge or height, edge or width


def _parse_synthetic(data: str) -> Source:
    """Parse ``synthetic:SAMPLES``, ``…xHEIGHTxWIDTH`` and ``…xHEIGHTxWIDTHxCHANNELS``."""
    match = re.fullmatch(r"synthetic(-on-device)?:(\d+)(?:x(\d+)x(\d+)(?:x([13]))?)?", data)
    if not match or not all(int(part or 1) for part in match.groups()[1:]):
        raise SpecError(
            f"not a synthetic data set: {data!r}",
            hint='write "synthetic:SAMPLES", "synthetic:SAMPLESxHEIGHTxWIDTH", and x3 after that '
            "for colours",
        )
    on_device, samples, height, width, channels = match.groups()
    shape = int(channels or 1), int(height or 28), int(width or 28)
    return Source("synthetic", count=int(samples), shape=shape, on_device=bool(on_device))


def _parse_tokens(data: str) -> Source:
    """Parse ``tokens:SAMPLES``, ``…xLENGTH`` and ``…xLENGTHxVOCABULARY``."""
    match = re.fullmatch(r"tokens:(\d+)(?:x(\d+)(?:x(\d+))?)?", data)
    if not match or not all(int(part or 1) for part in match.groups()):
        raise SpecError(
            f"not a set of synthetic tokens: {data!r}",
            hint='write "tokens:SAMPLES", "tokens:SAMPLESxLENGTH" or '
            '"tokens:SAMPLESxLENGTHxVOCABULARY"',
        )
    samples, length, vocabulary = (int(part) if part else None for part in match.groups())
    if vocabulary and vocabulary > MAX_VOCABULARY:
        raise SpecError(
            f"synthetic tokens have a vocabulary of at most {MAX_VOCABULARY:,}, and {data!r} asks "
            f"for {vocabulary:,}",
            hint="GPT-2 has 50,257",
        )
    return Source(
        "synthetic tokens",
        count=samples or 0,
        shape=length or LENGTH,
        vocabulary=vocabulary or VOCABULARY,
    )
