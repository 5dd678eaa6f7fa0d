"""A zip file of the worker (the part that runs in ranks), for Pythons (3.10+) without scalewise."""

import io
import os
import zipfile
from importlib.metadata import version
from pathlib import Path

from scalewise.errors import SpecError, shown
from scalewise.plugins import KINDS, available
from scalewise.record.write import write_bytes

FILE_NAME = "worker.zip"
MODULES = (
    "__init__.py", "errors.py", "files.py", "validate.py", "plugins.py", "spec",
    "record/__init__.py", "record/write.py", "record/close.py", "record/log.py",
    "record/json_files.py", "record/line_sums.py", "record/rank_tail.py", "record/run_clock.py",
    "record/failure_cause.py", "record/schema.py", "record/checkpoints.py", "probe", "watch",
    "frameworks",
)  # fmt: skip
WATCHER_PATH = "watch/inject.py"
"""The watcher: a module that measures a user's program from inside its processes."""
FIXED_DATE = (1980, 1, 1, 0, 0, 0)
"""The date of every entry, so that equal content gives an equal file."""


def pack(folder: Path) -> Path:
    """Write the zip into ``folder`` unless it is up to date; return its path."""
    if os.pathsep in str(folder):
        raise SpecError(
            f"the folder {folder} cannot be on Python's path: its name holds {shown(os.pathsep)}",
            hint="choose another output folder",
        )
    home = Path(__file__).parent.parent
    out = io.BytesIO()
    release = version("scalewise")
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(name: str, content: bytes) -> None:
            archive.writestr(zipfile.ZipInfo(name, FIXED_DATE), content, zipfile.ZIP_DEFLATED)

        for name in MODULES:
            path = home / name
            for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
                add(f"scalewise/{file.relative_to(home).as_posix()}", file.read_bytes())
        # Python imports sitecustomize first, so the watcher runs in every process of a program.
        add("sitecustomize.py", (home / WATCHER_PATH).read_bytes())
        # With metadata, importlib finds the zip's entry points as if the package were installed.
        metadata = f"Metadata-Version: 2.1\nName: scalewise\nVersion: {release}\n".encode()
        add(f"scalewise-{release}.dist-info/METADATA", metadata)
        lines = []
        for kind in KINDS:
            lines.append(f"[scalewise.{kind}]")
            for name, point in available(kind).items():
                if point.value.startswith("scalewise."):  # Plugins are not in the zip.
                    lines.append(f"{name} = {point.value}")
        add(f"scalewise-{release}.dist-info/entry_points.txt", "\n".join(lines).encode())
    path = folder / FILE_NAME
    if not path.exists() or path.read_bytes() != out.getvalue():
        write_bytes(path, out.getvalue())
    return path
