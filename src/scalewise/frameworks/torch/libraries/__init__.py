"""Models that lie elsewhere, by name: a library's, or what a module of the user's own makes.

A library is registered under ``scalewise.libraries``: a function from a model's name to what
makes it, called as every workload is, with the shape of a sample, the number of classes and
options. No weights are fetched: all begin anew.
"""

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any

from torch import Tensor, nn

from scalewise import plugins
from scalewise.errors import PluginError, SpecError
from scalewise.validate import nearest

Factory = Callable[..., nn.Module]
EXPECTED_FACTORY = "a function that takes (shape, classes, **options) and returns a torch.nn.Module"


def model_factory(workload: str) -> Factory:
    """Return what makes the model of this name; refuse a name that leads nowhere."""
    where, _, name = workload.partition(":")
    known = plugins.corner("libraries", "torch")
    if not where:
        raise PluginError(
            f"workload {workload!r} says not where {name!r} lies",
            hint=f"write MODULE:FUNCTION, or LIBRARY:NAME; libraries are: {', '.join(known)}",
        )
    if not name:
        raise PluginError(
            f"workload {workload!r} says not what of {where} to take", hint=f"write {where}:NAME"
        )
    if where in known:
        of_library: Callable[[str], Factory] = plugins.load("libraries", where, framework="torch")
        made = of_library(name)
    else:
        made = _own(workload, [*known])

    @wraps(made)
    def adapted(shape: tuple[int, int, int] | int, classes: int, **options: Any) -> nn.Module:
        try:
            return return_logits(made(shape, classes, **options), workload, classes)
        except ImportError as missing:
            raise PluginError(
                f"workload {workload!r} needs what cannot be imported: {missing}",
                hint=_fitting(missing)
                or f"import {where} in Python and make the model there, to see what is missing",
            ) from missing

    return adapted


def _own(workload: str, known: list[str]) -> Factory:
    """Return a function of somebody's module."""
    where, _, name = workload.partition(":")
    try:
        module = import_module(where)
        for part in name.split("."):
            module = getattr(module, part)
    except ModuleNotFoundError as missing:
        absent = str(missing.name)
        if f"{where}.".startswith(f"{absent}."):
            raise PluginError(
                f"workload {workload!r}: there is no module {absent!r}",
                hint=nearest(where, known)
                or f"put it on PYTHONPATH, or start scalewise in its folder; "
                f"libraries are: {', '.join(known)}",
            ) from missing
        raise PluginError(
            f"workload {workload!r} needs {absent}, which is not installed",
            hint=f"pip install {absent.partition('.')[0]}",
        ) from missing
    except AttributeError as missing:
        raise PluginError(
            f"workload {workload!r}: {where} has no {name!r}",
            hint=nearest(name, dir(module)) or f"name {EXPECTED_FACTORY}",
        ) from missing
    except (Exception, SystemExit) as broken:
        words = "it calls sys.exit" if isinstance(broken, SystemExit) else broken
        raise PluginError(
            f"workload {workload!r}: {where} cannot be imported: {words}",
            hint="import it in Python to see where",
        ) from broken
    if not callable(module):
        raise PluginError(
            f"workload {workload!r} is no function, but {type(module).__name__}: {module!r:.60}",
            hint=f"name {EXPECTED_FACTORY}",
        )
    return module


def import_library(name: str) -> Any:
    """Import a library, or say what is missing."""
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        absent = str(missing.name).partition(".")[0]
        raise PluginError(
            f"a workload {name}:NAME needs {absent}, which is not installed",
            hint=f"pip install {absent}",
        ) from missing
    except Exception as broken:
        raise PluginError(
            f"{name} is installed and cannot be imported: {broken}",
            hint=_fitting(broken) or _made_for_torch(name),
        ) from broken


def _fitting(broken: BaseException | None) -> str:
    """Return a hint where a torchvision that does not fit is behind a failure, else nothing."""
    while broken is not None:
        if "torchvision::" in str(broken):
            return _made_for_torch("torchvision")
        broken = broken.__cause__ or broken.__context__
    return ""


def _made_for_torch(name: str) -> str:
    return f"install the {name} that is made for this torch: its version, and its kind of device"


def unknown_model(where: str, name: str, known: list[str], usual: str) -> PluginError:
    """Return the answer to a name that a library does not have; a ``usual`` one is an example."""
    return PluginError(
        f"{where} has no model {name!r}; it has {len(known):,}",
        hint=nearest(name, known) or f"for example {where}:{usual}",
    )


def image(shape: tuple[int, int, int] | int) -> tuple[int, int, int]:
    """Return channels, height and width; refuse tokens."""
    if isinstance(shape, int):
        raise ValueError("it learns from images, and this data has tokens")
    return shape


def return_logits(model: nn.Module, workload: str, classes: int) -> nn.Module:
    """Have a model give its logits alone, whatever they come in; its parts keep their names.

    One for each class, of each image or of each position of a sequence.
    """
    if not isinstance(model, nn.Module):
        raise SpecError(
            f"workload {workload!r} makes {type(model).__name__}, not a torch.nn.Module",
            hint=f"name {EXPECTED_FACTORY}",
        )
    if not any(each.requires_grad for each in model.parameters()):
        raise SpecError(
            f"workload {workload!r} makes {type(model).__name__}, which has no parameters to learn",
            hint=f"name {EXPECTED_FACTORY}",
        )

    def logits(module: nn.Module, inputs: Any, output: Any) -> Tensor:
        found = output if isinstance(output, Tensor) else getattr(output, "logits", None)
        if found is None and isinstance(output, dict):
            found = output.get("logits")
        if found is None and isinstance(output, tuple) and output:
            found = output[0]
        if not isinstance(found, Tensor):
            raise SpecError(f"{workload} gives {type(output).__name__}, in which are no logits")
        (samples,) = inputs
        labelled = samples.shape[:1] if samples.dim() == 4 else samples.shape
        if found.shape[:-1] != labelled or found.shape[-1] < classes:
            raise SpecError(
                f"{workload} gives logits of {tuple(found.shape)}, "
                f"where {classes} classes need {(*labelled, classes)}",
                hint="a function that makes a model is given the number of classes",
            )
        return found

    model.register_forward_hook(logits)
    return model
