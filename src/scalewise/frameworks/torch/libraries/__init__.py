"""Models from other libraries or the user's modules, by name; weights are never downloaded.

A library is a function, registered under ``scalewise.libraries``, that returns a factory for the
name of a model. A factory is called like every workload: (shape of a sample, classes, options).
"""

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any

from torch import Tensor, nn

from scalewise import plugins
from scalewise.errors import PluginError, SpecError, shown
from scalewise.frameworks.data_source import Shape
from scalewise.validate import suggest_name

Factory = Callable[..., nn.Module]
FACTORY_HINT = "name a function (shape, classes, **options) that returns a torch.nn.Module"


def model_factory(workload: str) -> Factory:
    """Return the factory of a workload ``LIBRARY:NAME`` or ``MODULE:FUNCTION``."""
    source, _, name = workload.partition(":")
    libraries = [*plugins.framework_parts("libraries", "torch")]
    if not source:
        hint = f"write MODULE:FUNCTION, or LIBRARY:NAME; libraries are: {', '.join(libraries)}"
        raise PluginError(
            f"workload {shown(workload)} does not say where {shown(name)} is", hint=hint
        )
    if not name:
        raise PluginError(
            f"workload {shown(workload)} names no model of {source}", hint=f"write {source}:NAME"
        )
    if source in libraries:
        library: Callable[[str], Factory] = plugins.load("libraries", source, framework="torch")
        factory = library(name)
    else:
        factory = _import_factory(workload, libraries)

    @wraps(factory)
    def build(shape: Shape, classes: int, **options: Any) -> nn.Module:
        try:
            return return_logits(factory(shape, classes, **options), workload, classes)
        except ImportError as missing:
            hint = f"build the model of {source} in Python to see what is missing"
            raise PluginError(
                f"workload {shown(workload)} needs a module that cannot be imported: {missing}",
                hint=_torchvision_hint(missing) or hint,
            ) from missing

    return build


def _import_factory(workload: str, libraries: list[str]) -> Factory:
    """Import the function that ``MODULE:FUNCTION`` names."""
    source, _, name = workload.partition(":")
    try:
        value: Any = import_module(source)
        for attribute in name.split("."):
            value = getattr(value, attribute)
    except ModuleNotFoundError as missing:
        missing_module = str(missing.name)
        if f"{source}.".startswith(f"{missing_module}."):  # ``source`` or its package.
            raise PluginError(
                f"workload {shown(workload)}: there is no module {shown(missing_module)}",
                hint=suggest_name(source, libraries)
                or f"put it on PYTHONPATH, or start scalewise in its folder; "
                f"libraries are: {', '.join(libraries)}",
            ) from missing
        raise PluginError(
            f"workload {shown(workload)} needs {missing_module}, which is not installed",
            hint=f"pip install {missing_module.partition('.')[0]}",
        ) from missing
    except AttributeError as missing:
        raise PluginError(
            f"workload {shown(workload)}: {source} has no {shown(name)}",
            hint=suggest_name(name, dir(value)) or FACTORY_HINT,
        ) from missing
    except (Exception, SystemExit) as error:
        reason = "it calls sys.exit" if isinstance(error, SystemExit) else error
        raise PluginError(
            f"workload {shown(workload)}: {source} cannot be imported: {reason}",
            hint="import it in Python to see where it fails",
        ) from error
    if not callable(value):
        raise PluginError(
            f"workload {shown(workload)} is not a function: {type(value).__name__} {value!r:.60}",
            hint=FACTORY_HINT,
        )
    factory: Factory = value
    return factory


def import_library(name: str) -> Any:
    """Import a library; raise PluginError with a hint if that fails."""
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        missing_module = str(missing.name).partition(".")[0]
        raise PluginError(
            f"a workload {name}:NAME needs {missing_module}, which is not installed",
            hint=f"pip install {missing_module}",
        ) from missing
    except Exception as error:
        raise PluginError(
            f"{name} is installed, but cannot be imported: {error}",
            hint=_torchvision_hint(error) or _version_hint(name),
        ) from error


def _torchvision_hint(error: BaseException | None) -> str:
    """Return a hint if an incompatible torchvision caused an error, else an empty string."""
    while error is not None:
        if "torchvision::" in str(error):  # One of its operators does not exist.
            return _version_hint("torchvision")
        error = error.__cause__ or error.__context__
    return ""


def _version_hint(name: str) -> str:
    return f"install the {name} that is built for the version and device type of this torch"


def unknown_model(library: str, name: str, models: list[str], example: str) -> PluginError:
    """Return the error for a model that a library does not have."""
    return PluginError(
        f"{library} has no model {shown(name)} among its {len(models):,}",
        hint=suggest_name(name, models) or f"for example {library}:{example}",
    )


def return_logits(model: nn.Module, workload: str, classes: int) -> nn.Module:
    """Make a model return only its logits, in place; its submodules keep their names."""
    problem = f"workload {shown(workload)} returns {type(model).__name__}"
    if not isinstance(model, nn.Module):
        raise SpecError(f"{problem}, not a torch.nn.Module", hint=FACTORY_HINT)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise SpecError(f"{problem}, which has no trainable parameters", hint=FACTORY_HINT)

    def extract_logits(module: nn.Module, inputs: Any, output: Any) -> Tensor:
        logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
        if logits is None and isinstance(output, dict):
            logits = output.get("logits")
        if logits is None and isinstance(output, tuple) and output:
            logits = output[0]
        if not isinstance(logits, Tensor):
            raise SpecError(f"{workload} returns {type(output).__name__} without logits")
        (samples,) = inputs
        # An image has one label; of a sequence, each token has one.
        label_shape = samples.shape[:1] if samples.dim() == 4 else samples.shape
        if logits.shape[:-1] != label_shape or logits.shape[-1] < classes:
            raise SpecError(
                f"{workload} returns logits of shape {tuple(logits.shape)}, "
                f"but {classes} classes need {(*label_shape, classes)}",
                hint="build the model for the number of classes that its function is called with",
            )
        return logits

    model.register_forward_hook(extract_logits)
    return model
