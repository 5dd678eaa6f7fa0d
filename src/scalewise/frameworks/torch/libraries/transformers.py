"""Image classifiers and causal decoders of Transformers, by model type or configuration file."""

from pathlib import Path
from typing import Any

from torch import nn

from scalewise.errors import PluginError, shown
from scalewise.frameworks.data_source import Shape
from scalewise.frameworks.torch.libraries import Factory, import_library, unknown_model
from scalewise.validate import suggest_name


def model(name: str) -> Factory:
    """Return the factory of a model; ``name``: a type, or a path (config.json or its folder)."""
    transformers = import_library("transformers")
    config = _load_config(transformers, name)

    def build(shape: Shape, classes: int, **options: Any) -> nn.Module:
        is_text = isinstance(shape, int)
        kind = "CausalLM" if is_text else "ImageClassification"
        auto_class = getattr(transformers, f"AutoModelFor{kind}")
        if type(config) not in auto_class._model_mapping:
            role, data = ("decoder", "tokens") if is_text else ("image classifier", "images")
            raise PluginError(
                f"Transformers has no {role} of type {shown(config.model_type)}, and the data is "
                f"{data}",
                hint=f"for example transformers:{'gpt2' if is_text else 'vit'}, or other data",
            )
        adapted = _adapt_config(config, shape, classes)
        for key, value in options.items():
            if not hasattr(adapted, key):
                hint = suggest_name(key, adapted.to_dict())
                raise ValueError(f"its configuration has no {shown(key)}; {hint}".rstrip("; "))
            setattr(adapted, key, value)
        network: nn.Module = auto_class.from_config(adapted)
        return network

    return build


def _load_config(transformers: Any, name: str) -> Any:
    types = sorted(transformers.CONFIG_MAPPING.keys())
    path = Path(name).expanduser()
    # A type wins over a file of the same name, but not over a folder with a configuration.
    if path.exists() and (name not in types or (path / "config.json").exists()):
        try:
            return transformers.AutoConfig.from_pretrained(path)
        except (OSError, ValueError, KeyError) as error:
            raise PluginError(
                f"{name} does not configure a Transformers model: {' '.join(str(error).split())}",
                hint="give a config.json, or a folder with one",
            ) from error
    if name not in types:
        raise unknown_model("transformers", name, types, "gpt2, or transformers:vit for images")
    return transformers.AutoConfig.for_model(name)


def _adapt_config(config: Any, shape: Shape, classes: int) -> Any:
    """Return a copy of a configuration, with the shape of samples and the number of classes."""
    adapted = type(config).from_dict(config.to_dict())
    if isinstance(shape, int):
        adapted.vocab_size = classes
        adapted.use_cache = False
        if getattr(adapted, "max_position_embeddings", shape) < shape:
            adapted.max_position_embeddings = shape
        if (getattr(adapted, "pad_token_id", None) or 0) >= classes:  # Outside of the vocabulary.
            adapted.pad_token_id = None
        return adapted
    channels, height, width = shape
    adapted.num_labels = classes
    if hasattr(adapted, "num_channels"):
        adapted.num_channels = channels
    if hasattr(adapted, "image_size"):
        adapted.image_size = height if height == width else (height, width)
    return adapted
