"""Image models of timm, by its names for them."""

from typing import Any

from torch import nn

from scalewise.frameworks.torch.libraries import Factory, image, import_library, unknown_model


def model(name: str) -> Factory:
    """Return what makes timm's model of this name."""
    timm = import_library("timm")
    if not timm.is_model(name):
        raise unknown_model("timm", name, timm.list_models(), "resnet50")

    def build(shape: tuple[int, int, int], classes: int, **options: Any) -> nn.Module:
        channels, *edges = image(shape)
        if options.get("pretrained"):
            raise ValueError("it learns from the start, and no weights are fetched")
        known = timm.get_pretrained_cfg(name, allow_unregistered=True)
        if getattr(known, "fixed_input_size", False):
            options = {"img_size": tuple(edges), **options}
        made: nn.Module = timm.create_model(name, num_classes=classes, in_chans=channels, **options)
        return made

    return build
