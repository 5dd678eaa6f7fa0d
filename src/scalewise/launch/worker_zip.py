"""The worker's half as one file, to travel into other people's environments.

A zip on the PYTHONPATH works in any Python from 3.10 up, whatever is installed
there. Its ``sitecustomize`` is the first thing such a Python runs: so the
watcher reaches every process of a program without an edit.
"""

import io
import os
import zipfile
from importlib.metadata import EntryPoint, version
from pathlib import Path

from scalewise.errors import SpecError
from scalewise.plugins import KINDS, available
from scalewise.record.write import write_bytes

FILE_NAME = "worker.zip"
MODULES = (
    "__init__.py", "errors.py", "validate.py", "plugins.py", "spec",
    "record/__init__.py", "record/write.py", "record/close.py", "record/log.py",
    "record/rank_tail.py", "record/failure_cause.py", "record/schema.py",
    "record/checkpoints.py", "record/spans.py", "probe", "watch", "frameworks",
)  # fmt: skip
INJECTION = "watch/inject.py"
FIXED_DATE = (1980, 1, 1, 0, 0, 0)
"""One date for all: equal content makes an equal file."""


def pack(folder: Path) -> Path:
    """Write the parcel into ``folder`` unless it is there, and return where it is."""
    if os.pathsep in str(folder):
        raise SpecError(
            f"the folder {folder} cannot be on Python's path: its name holds {os.pathsep!r}",
            hint="give another folder with -o",
        )
    path, content = folder / FILE_NAME, _parcel()
    if not path.exists() or path.read_bytes() != content:
        write_bytes(path, content)
    return path


def _parcel() -> bytes:
    home = Path(__file__).parent.parent
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as parcel:
        for name in MODULES:
            path = home / name
            for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
                _add(parcel, f"scalewise/{file.relative_to(home).as_posix()}", file)
        _add(parcel, "sitecustomize.py", home / INJECTION)
        _write(parcel, f"scalewise-{version('scalewise')}.dist-info/METADATA", _metadata())
        _write(parcel, f"scalewise-{version('scalewise')}.dist-info/entry_points.txt", _parts())
    return out.getvalue()


def _metadata() -> bytes:
    """Return what makes the parcel a package among the installed ones."""
    return f"Metadata-Version: 2.1\nName: scalewise\nVersion: {version('scalewise')}\n".encode()


def _parts() -> bytes:
    """Return our own parts, as an installed package lists them."""
    lines = []
    for kind in KINDS:
        lines.append(f"[scalewise.{kind}]")
        lines += [
            f"{name} = {point.value}" for name, point in available(kind).items() if _ours(point)
        ]
    return "\n".join(lines).encode()


def _ours(point: EntryPoint) -> bool:
    """Say whether a part is one of scalewise's own."""
    return point.value.startswith("scalewise.")


def _add(parcel: zipfile.ZipFile, name: str, file: Path) -> None:
    _write(parcel, name, file.read_bytes())


def _write(parcel: zipfile.ZipFile, name: str, content: bytes) -> None:
    parcel.writestr(zipfile.ZipInfo(name, FIXED_DATE), content, zipfile.ZIP_DEFLATED)
