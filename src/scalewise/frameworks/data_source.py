"""Where the data comes from, and whether it is there; no engine."""

import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from scalewise.errors import PluginError, SpecError
from scalewise.spec import RunSpec
from scalewise.validate import is_there, nearest, nearest_path

Kind = Literal[
    "digits", "synthetic", "made-up tokens", "packed", "cifar", "idx", "tokens", "images"
]
Shape = tuple[int, int, int] | int
"""Channels, height and width of an image, or the number of tokens of a sequence."""
LENGTH = 64
"""Tokens of one sample, unless a run says otherwise."""
EDGE = 224
"""Pixels of a side that images of any size are brought to, unless a run says otherwise."""
VOCABULARY = 36
"""Words of a made-up language: as many as there are digits and letters."""
MOST_WORDS = 10_000_000
"""Ten times what any model has: each is drawn, one by one."""


@dataclass(frozen=True, slots=True)
class Source:
    """A data set: the embedded digits, a made-up one, or one of the formats of files."""

    kind: Kind
    path: Path = Path()
    count: int = 0
    """Samples of a made-up set."""
    shape: Shape = 0
    """What a model sees of one sample."""
    vocabulary: int = VOCABULARY
    """Words of a made-up language."""
    on_device: bool = False
    """Whether a made-up set lies on the device from the start, and nothing needs to travel."""

    @classmethod
    def of_run(cls, spec: RunSpec) -> "Source":
        """Read what a run says of its data; refuse what is not there.

        Where it names none it is the embedded digits, or made-up tokens for a
        workload that learns from those.
        """
        usual = "tokens:10000" if str(spec.workload).startswith("gpt") else "digits"
        return cls.of(spec.data or usual, edge=spec.edge, length=spec.length)

    @classmethod
    def of(cls, data: str, *, edge: int | None = None, length: int | None = None) -> "Source":
        """Read a run's ``data`` field.

        >>> Source.of("synthetic:1000").shape
        (1, 28, 28)
        """
        kind = data.partition(":")[0]
        if data == "digits":
            _refuse_no_digits()
            return cls("digits", shape=_square(1, 8, edge))
        if kind in ("synthetic", "synthetic-on-device"):
            return _synthetic(data)
        if kind == "tokens":
            return _tokens(data)
        return _files(data, edge, length)


def refuse_crop(source: Source, augment: str) -> None:
    """Refuse to cut pieces out of images that have one size: only folders have larger ones."""
    if augment == "crop" and source.kind != "images":
        what = source.path if source.path.name else "the data"
        raise SpecError(
            f'augment = "crop" is for folders of images, and {what} is {source.kind}',
            hint='write augment = "flip"',
        )


def _square(channels: int, usual: int, edge: int | None) -> Shape:
    return channels, edge or usual, edge or usual


def _refuse_no_digits() -> None:
    if find_spec("sklearn") is None:
        raise PluginError(
            "the embedded digits come with scikit-learn, which is not installed",
            hint='pip install scikit-learn beside the engine, or give data = "synthetic:10000"',
        )


def _files(data: str, edge: int | None, length: int | None) -> Source:
    path = Path(data).expanduser()
    if not is_there(path):
        raise SpecError(
            f"there is no data {data}",
            hint=nearest(data, ["digits"])
            or nearest_path(path)
            or "give a folder of images, packed images, CIFAR's batches or MNIST's idx files, a "
            'text or token file, "digits", "synthetic:10000" or "tokens:10000"',
        )
    from scalewise.frameworks.data import cifar, idx, tokens
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
        from scalewise.frameworks.data.packed import Packed

        packed = Packed.of(path)
        if edge not in (None, packed.edge):
            raise SpecError(
                f"{data} is packed at {packed.edge} pixels, and this run says edge {edge}",
                hint=f"leave edge out, or pack it again with --edge {edge}",
            )
        return Source("packed", path, shape=_square(3, packed.edge, None))
    (height, width), held = idx.edges(path, "train"), idx.edges(path, "validation")
    if edge is None and held != (height, width) and height != width:
        raise SpecError(
            f"{data} has training images of {width}x{height} and others to validate on, of "
            f"{held[1]}x{held[0]}",
            hint=f"write edge = {height}: all are brought to {height}x{height}",
        )
    return Source("idx", path, shape=(1, edge or height, edge or width))


def _synthetic(data: str) -> Source:
    """Read ``synthetic:SAMPLES``, with a height and a width, with a number of channels."""
    found = re.fullmatch(r"synthetic(-on-device)?:(\d+)(?:x(\d+)x(\d+)(?:x([13]))?)?", data)
    if not found or not all(int(part or 1) for part in found.groups()[1:]):
        raise SpecError(
            f"not a synthetic data set: {data!r}",
            hint='write "synthetic:SAMPLES", "synthetic:SAMPLESxHEIGHTxWIDTH", and x3 after that '
            "for colours",
        )
    there, samples, height, width, channels = found.groups()
    shape = int(channels or 1), int(height or 28), int(width or 28)
    return Source("synthetic", count=int(samples), shape=shape, on_device=bool(there))


def _tokens(data: str) -> Source:
    found = re.fullmatch(r"tokens:(\d+)(?:x(\d+)(?:x(\d+))?)?", data)
    if not found or not all(int(part or 1) for part in found.groups()):
        raise SpecError(
            f"not a set of made-up tokens: {data!r}",
            hint='write "tokens:SAMPLES", "tokens:SAMPLESxLENGTH" or '
            '"tokens:SAMPLESxLENGTHxVOCABULARY"',
        )
    samples, length, words = (int(each) if each else None for each in found.groups())
    if words and words > MOST_WORDS:
        raise SpecError(
            f"a made-up language has at most {MOST_WORDS:,} words, and {data!r} asks for {words:,}",
            hint="GPT-2 has 50,257",
        )
    return Source(
        "made-up tokens", count=samples or 0, shape=length or LENGTH, vocabulary=words or VOCABULARY
    )
