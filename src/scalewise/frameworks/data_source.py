"""Parse a run's ``data`` field, and check that the data exists; needs no framework."""

import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from scalewise.errors import PluginError, SpecError, shown
from scalewise.frameworks import too_few_samples
from scalewise.spec import RunSpec
from scalewise.validate import PERMISSION_HINT, path_exists, suggest_name, suggest_path

Kind = Literal[
    "digits", "synthetic", "synthetic tokens", "packed", "cifar", "idx", "tokens", "images"
]
Shape = tuple[int, int, int] | int
"""Channels, height and width of an image, or the tokens of a sequence."""
DEFAULT_LENGTH = 64
"""Tokens per sample, if the run sets no ``length``."""
DEFAULT_EDGE = 224
"""Pixels per side to which the images of a folder are resized, if the run sets no ``edge``."""
DEFAULT_VOCABULARY = 36
"""Number of different synthetic tokens, if ``data`` does not say it."""
MAX_VOCABULARY = 10_000_000
"""Limit for synthetic tokens. No real model has a larger vocabulary; it would take much memory."""


@dataclass(frozen=True, slots=True)
class Source:
    """A data set: scikit-learn's digits, a synthetic one, or files in one of the known formats."""

    kind: Kind
    path: Path = Path()
    count: int = 0
    """Samples of a synthetic set; 0 for other data, whose samples are not counted here."""
    shape: Shape = 0
    """The shape of one sample as the model sees it."""
    vocabulary: int = DEFAULT_VOCABULARY
    """Number of different synthetic tokens."""
    on_device: bool = False
    """Whether a synthetic set is generated on the device, so that no input is transferred."""

    @classmethod
    def of_run(cls, spec: RunSpec) -> "Source":
        """Return the data of a run, by default digits (GPTs: tokens); refuse too few samples."""
        default = "tokens:10000" if str(spec.workload).startswith("gpt") else "digits"
        source = cls.of(spec.data or default, edge=spec.edge, length=spec.length)
        if source.count and source.count < spec.replicas:
            raise too_few_samples(source.count, spec.replicas)
        return source

    @classmethod
    def of(cls, data: str, *, edge: int | None = None, length: int | None = None) -> "Source":
        """Parse a run's ``data`` field.

        >>> Source.of("synthetic:1000").shape
        (1, 28, 28)
        """
        prefix = data.partition(":")[0]
        if data == "digits":
            if find_spec("sklearn") is None:
                raise PluginError(
                    "the embedded digits come with scikit-learn, which is not installed",
                    hint="pip install scikit-learn beside the framework, or give "
                    'data = "synthetic:10000"',
                )
            return cls("digits", shape=(1, edge or 8, edge or 8))
        if prefix in ("synthetic", "synthetic-on-device"):
            return _parse_synthetic(data)
        if prefix == "tokens":
            return _parse_tokens(data)
        return _source_of_files(data, edge, length or DEFAULT_LENGTH)


def refuse_crop(source: Source, augment: str) -> None:
    """Refuse random crops unless the data is an image folder; other kinds have small images."""
    if augment == "crop" and source.kind != "images":
        name = source.path if source.path.name else "the data"
        raise SpecError(
            f'augment = "crop" is for folders of images, and {name} is {source.kind}',
            hint='write augment = "flip"',
        )


def in_memory_source(spec: RunSpec) -> Source:
    """Return the data of a run as ``Source.of_run`` does; refuse data that only PyTorch reads."""
    source = Source.of_run(spec)
    if source.kind not in ("digits", "synthetic", "idx", "cifar") or source.on_device:
        raise SpecError(
            f"the {spec.framework} framework does not read {shown(spec.data or source.kind)}",
            hint='give MNIST\'s idx files, CIFAR\'s batches, "digits" or "synthetic:10000"',
        )
    return source


def kind_of(path: Path) -> Kind:
    """Return the kind of data set at a path, judged by file names only; refuse an unknown kind."""
    from scalewise.frameworks.data import cifar, idx, printable, tokens

    if not path_exists(path):
        raise SpecError(
            f"there is no data in {printable(path)}",
            hint=suggest_path(path) or "is the path right?",
        )
    try:
        if (path / "train").is_dir():  # This decides even if there are files of another kind.
            return "images"
        if tokens.find_files(path):
            return "tokens"
        if (path / "index.json").is_file():
            return "packed"
        if cifar.find_batches(path):
            return "cifar"
        if any(idx.find_file(path, name) for name in idx.FILES):
            return "idx"
    except OSError as error:
        raise SpecError(
            f"cannot look into {printable(path)}: {error.strerror}", hint=PERMISSION_HINT
        ) from error
    raise SpecError(
        f"{printable(path)} is not a data set that scalewise knows",
        hint="an image folder has train/CLASS/*.jpg; others are packed images, CIFAR's "
        "batches, MNIST's idx files and token files",
    )


def _source_of_files(data: str, edge: int | None, length: int) -> Source:
    """Return the data set at the path ``data``; the file names decide its kind."""
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

    kind = kind_of(path)
    if kind == "tokens":
        tokens.refuse_short(path, length)
        return Source(kind, path, shape=length)
    if kind == "idx":
        return Source(kind, path, shape=_idx_shape(path, data, edge))
    if kind == "packed":
        edge = _packed_edge(path, data, edge)
    elif kind == "cifar":
        cifar.refuse_empty(path)
    side = edge or (cifar.EDGE if kind == "cifar" else DEFAULT_EDGE)
    return Source(kind, path, shape=(3, side, side))


def _packed_edge(path: Path, data: str, edge: int | None) -> int:
    from scalewise.frameworks.data.packed import Packed

    packed = Packed.of(path)
    if edge not in (None, packed.edge):
        raise SpecError(
            f"{data} is packed at {packed.edge} pixels, and this run says edge {edge}",
            hint=f"leave edge out, or pack it again with --edge {edge}",
        )
    return packed.edge


def _idx_shape(path: Path, data: str, edge: int | None) -> Shape:
    """Return the shape of MNIST's images; two sizes need ``edge``, or square training images."""
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
    if not match or 0 in (int(part or 1) for part in match.groups()[1:]):
        raise SpecError(
            f"not a synthetic data set: {shown(data)}",
            hint='write "synthetic:SAMPLES", "synthetic:SAMPLESxHEIGHTxWIDTH" or, for colours, '
            '"synthetic:SAMPLESxHEIGHTxWIDTHx3"',
        )
    on_device, samples, height, width, channels = match.groups()
    shape = int(channels or 1), int(height or 28), int(width or 28)
    return Source("synthetic", count=int(samples), shape=shape, on_device=bool(on_device))


def _parse_tokens(data: str) -> Source:
    """Parse ``tokens:SAMPLES``, ``…xLENGTH`` and ``…xLENGTHxVOCABULARY``."""
    match = re.fullmatch(r"tokens:(\d+)(?:x(\d+)(?:x(\d+))?)?", data)
    if not match or 0 in (int(part or 1) for part in match.groups()):
        raise SpecError(
            f"not a set of synthetic tokens: {shown(data)}",
            hint='write "tokens:SAMPLES", "tokens:SAMPLESxLENGTH" or '
            '"tokens:SAMPLESxLENGTHxVOCABULARY"',
        )
    samples, length, vocabulary = match.groups()
    length, vocabulary = int(length or DEFAULT_LENGTH), int(vocabulary or DEFAULT_VOCABULARY)
    if vocabulary > MAX_VOCABULARY:
        raise SpecError(
            f"synthetic tokens have a vocabulary of at most {MAX_VOCABULARY:,}, and "
            f"{shown(data)} asks for {vocabulary:,}",
            hint="GPT-2 has 50,257",
        )
    return Source("synthetic tokens", count=int(samples), shape=length, vocabulary=vocabulary)
