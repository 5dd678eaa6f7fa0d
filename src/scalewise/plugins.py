"""Find a part of scalewise by kind and name, without importing the other parts.

A part is an entry point, of scalewise or of a plugin. The full name of a framework's part is
``<framework>.<name>`` (``torch.ddp``); users write only the short name (``ddp``). The entry point
``"deepspeed.*" = "scalewise.frameworks.torch:Torch"`` gives deepspeed all parts of torch.
"""

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, get_args

from scalewise.errors import PluginError, shown
from scalewise.validate import suggest_name

Kind = Literal["launchers", "frameworks", "strategies", "workloads", "libraries", "laws", "traits"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SINGULAR = {kind: kind.replace("ies", "y").removesuffix("s") for kind in KINDS}
WILDCARD = "*"
"""The short name of an entry point that stands for all parts of another framework."""


@cache
def available(kind: Kind) -> dict[str, EntryPoint]:
    """Return every registered part of this kind, by name, without importing any."""
    parts: dict[str, EntryPoint] = {}
    for point in entry_points(group=f"scalewise.{kind}"):
        if point.name in parts and parts[point.name].value != point.value:
            raise PluginError(
                f"two packages both register {kind} {shown(point.name)}: "
                f"{parts[point.name].value} and {point.value}",
                hint="uninstall one of them",
            )
        parts[point.name] = point
    return dict(sorted(parts.items()))


def find(kind: Kind, name: str, *, framework: str = "") -> EntryPoint:
    """Return the part of ``framework`` with this short name; without framework, by full name."""
    parts = framework_parts(kind, framework)
    if name not in parts:
        owner = f" for framework {shown(framework)}" if framework else ""
        choices = f"there are: {', '.join(parts)}" if parts else "there are none"
        raise PluginError(
            f"no {SINGULAR[kind]} named {shown(name)}{owner}; {choices}",
            hint=suggest_name(name, parts)
            or _frameworks_hint(kind, name)
            or "`scalewise plugins` shows all",
        )
    return parts[name]


def _frameworks_hint(kind: Kind, name: str) -> str:
    """Return a hint that lists the frameworks with a part of this name; empty if none has one."""
    names = (full_name.partition(".") for full_name in available(kind))
    owners = [framework for framework, _, short in names if short == name]
    return f"frameworks that have it: {', '.join(owners)}" if owners else ""


def framework_parts(kind: Kind, framework: str) -> dict[str, EntryPoint]:
    """Return the parts of a framework by short name; with ``""``, all parts by full name."""
    prefix = f"{framework}." if framework else ""
    own_parts = {
        full_name.removeprefix(prefix): point
        for full_name, point in available(kind).items()
        if full_name.startswith(prefix)
    }
    if not framework or WILDCARD not in own_parts:
        return own_parts
    base = own_parts.pop(WILDCARD).value
    base_names = [name for name, point in available("frameworks").items() if point.value == base]
    # A part of the framework itself replaces the base framework's part of the same name.
    return {
        part: point for name in base_names for part, point in framework_parts(kind, name).items()
    } | own_parts


def is_import_path(workload: str, framework: str) -> bool:
    """Return whether this is ``library:NAME`` or ``module:factory`` and the framework allows it."""
    return ":" in workload and bool(framework_parts("libraries", framework))


def install_hint(framework: str) -> str:
    """Return how to install a framework. Horovod's release does not build with current PyTorch."""
    if framework == "horovod":
        return "build Horovod with `make horovod` in a checkout of scalewise"
    return f"pip install 'scalewise[{framework}]'"


def load(kind: Kind, name: str, *, framework: str = "") -> Any:
    """Import and return the part registered as ``name``."""
    point = find(kind, name, framework=framework)
    try:
        return point.load()
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise PluginError(
            f"{SINGULAR[kind]} {shown(name)} needs {package}, which is not installed",
            hint=install_hint(framework or name)
            if point.value.startswith("scalewise.")  # A built-in part.
            else f"pip install {package}",
        ) from error
    except (ImportError, AttributeError) as error:
        raise PluginError(
            f"{SINGULAR[kind]} {shown(name)} cannot be loaded: {error}",
            hint="repair the package that registers it, or uninstall it",
        ) from error
