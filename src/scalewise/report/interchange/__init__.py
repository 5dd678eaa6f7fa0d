"""Write results in the formats of other tools. Nothing is sent anywhere.

contents     what is written, the same in each format
tensorboard, mlflow_store, wandb_runs   folders; each needs its package
openmetrics, extrap, mllog              text files
package_settings                        environment variables that keep packages offline
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from scalewise.analysis.measure import ScalingCurve
from scalewise.analysis.measure.energy import NodeSamples
from scalewise.errors import PluginError, RecordError, SpecError, parameter, shown
from scalewise.record.read import RunRecord
from scalewise.record.write import cannot_write, write_text
from scalewise.report.interchange.contents import export_curve
from scalewise.validate import suggest_name


@dataclass(frozen=True, slots=True)
class Format:
    """A format of another tool; its module has ``render`` for a file, ``write`` for a folder."""

    module: str
    is_folder: bool = False
    suffixes: tuple[str, ...] = ()
    """Endings of a file's name that mean this format."""
    package: str | None = None
    """The package that writes it, if one is needed."""
    install: str | None = None
    """What pip installs for it; the smallest that is enough."""


FORMATS = {
    "tensorboard": Format(
        "tensorboard", is_folder=True, package="tensorboard", install="tensorboard"
    ),
    "mlflow": Format("mlflow_store", is_folder=True, package="mlflow", install="mlflow-skinny"),
    "wandb": Format("wandb_runs", is_folder=True, package="wandb", install="wandb"),
    "openmetrics": Format("openmetrics", suffixes=(".prom", ".openmetrics")),
    "extrap": Format("extrap", suffixes=(".jsonl",)),
    "mllog": Format("mllog", suffixes=(".mllog",)),
}
LoadedCurve = tuple[ScalingCurve, Sequence[RunRecord], NodeSamples]
DEFAULT_OUTPUT = Path("report.html")
SUFFIXES = {suffix: name for name, kind in FORMATS.items() for suffix in kind.suffixes}


def find_format(name: str) -> Format:
    """Return a format by name; refuse it if its package is not installed."""
    if name not in FORMATS:
        raise SpecError(
            f"unknown format: {shown(name)}",
            hint=suggest_name(name, FORMATS) or f"{parameter('as')} takes {', '.join(FORMATS)}",
        )
    kind = FORMATS[name]
    if kind.package and find_spec(kind.package) is None:
        raise PluginError(
            f"{name} files are written by the package {kind.package}, which is not installed",
            hint=f"pip install {kind.install}",
        )
    return kind


def choose_format(name: str | None, path: Path) -> str | None:
    """Return the format that was asked for, or else that of the file's ending; None for a report.
    A format that cannot be written here is refused before any run is read.
    """
    name = name or SUFFIXES.get(path.suffix.lower())
    if name is None:
        return None
    kind = find_format(name)
    if path == DEFAULT_OUTPUT:
        what, example = ("folder", name) if kind.is_folder else ("file", f"study{kind.suffixes[0]}")
        raise SpecError(f"{name} needs the {what} to write", hint=f"-o {example}")
    if not kind.is_folder and path.is_dir():
        raise SpecError(f"{path} is a folder, but {name} is one file", hint="choose another -o")
    records = (path / "study.json", path / "spec.json", *path.glob("*/study.json"))
    if kind.is_folder and (path.is_file() or any(record.exists() for record in records)):
        raise SpecError(f"{path} is not a folder for {name}", hint="choose another -o")
    return name


def write_interchange(loaded: Sequence[LoadedCurve], path: Path, name: str) -> Path:
    """Write curves, each with its run records and node samples, in the format ``name``. Return the
    path of the file or folder.
    """
    curves = [export_curve(*parts) for parts in loaded]
    kind = find_format(name)
    module = import_module(f"{__name__}.{kind.module}")
    if not kind.is_folder:
        write_text(path, module.render(curves))
        return path
    try:
        path.mkdir(parents=True, exist_ok=True)
        module.write(curves, path)
    except OSError as error:
        raise cannot_write(path, error) from error
    except Exception as error:  # Packages have errors of their own.
        reason = f"{error}".partition("\n")[0] or type(error).__name__
        hint = f"pip install --upgrade {kind.install}, or choose another -o"
        raise RecordError(f"{kind.package} cannot write {path}: {reason}", hint=hint) from error
    return path
