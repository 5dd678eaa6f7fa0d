"""Models of Transformers: by the name of a type, or by a file that configures one.

Images are for its image classifiers, tokens for its causal decoders.
"""

from pathlib import Path
from typing import Any

from torch import nn

from scalewise.errors import PluginError
from scalewise.frameworks.torch.libraries import Factory, import_library, unknown_model
from scalewise.validate import nearest


def model(name: str) -> Factory:
    """Return what makes a model of this type, or of this config.json or its folder."""
    transformers = import_library("transformers")
    config = _config(transformers, name)

    def build(shape: tuple[int, int, int] | int, classes: int, **options: Any) -> nn.Module:
        tokens = isinstance(shape, int)
        kind = "CausalLM" if tokens else "ImageClassification"
        auto = getattr(transformers, f"AutoModelFor{kind}")
        if type(config) not in auto._model_mapping:
            what, data = ("decoder", "tokens") if tokens else ("image classifier", "images")
            raise PluginError(
                f"Transformers has no {what} of type {config.model_type!r}, and the data is {data}",
                hint=f"for example transformers:{'gpt2' if tokens else 'vit'}, or other data",
            )
        whole = _fitted(config, shape, classes)
        for key, value in options.items():
            if not hasattr(whole, key):
                hint = nearest(key, whole.to_dict())
                raise ValueError(f"its configuration has no {key!r}; {hint}".rstrip("; "))
            setattr(whole, key, value)
        made: nn.Module = auto.from_config(whole)
        return made

    return build


def _config(transformers: Any, name: str) -> Any:
    known = sorted(transformers.CONFIG_MAPPING.keys())
    path = Path(name).expanduser()
    if path.exists() and (name not in known or (path / "config.json").exists()):
        try:
            return transformers.AutoConfig.from_pretrained(path)
        except (OSError, ValueError, KeyError) as bad:
            raise PluginError(
                f"{name} configures no model of Transformers: {' '.join(str(bad).split())}",
                hint="give a config.json, or a folder with one",
            ) from bad
    if name not in known:
        raise unknown_model("transformers", name, known, "gpt2, or transformers:vit for images")
    return transformers.AutoConfig.for_model(name)


def _fitted(config: Any, shape: tuple[int, int, int] | int, classes: int) -> Any:
    """Return a copy of a configuration, for samples of this shape and so many classes."""
    fit = type(config).from_dict(config.to_dict())
    if isinstance(shape, int):
        fit.vocab_size = classes
        fit.use_cache = False
        if getattr(fit, "max_position_embeddings", shape) < shape:
            fit.max_position_embeddings = shape
        if (getattr(fit, "pad_token_id", None) or 0) >= classes:
            fit.pad_token_id = None
        return fit
    channels, height, width = shape
    fit.num_labels = classes
    if hasattr(fit, "num_channels"):
        fit.num_channels = channels
    if hasattr(fit, "image_size"):
        fit.image_size = height if height == width else (height, width)
    return fit
