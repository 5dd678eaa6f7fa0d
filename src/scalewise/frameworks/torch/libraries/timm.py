"""Image models of timm, by their names in timm."""

from typing import Any

from torch import nn

from scalewise.frameworks.torch.libraries import Factory, import_library, unknown_model
from scalewise.frameworks.torch.models.parts import image_shape


def model(name: str) -> Factory:
    """Return the factory of a model of timm."""
    timm = import_library("timm")
    if not timm.is_model(name):
        raise unknown_model("timm", name, timm.list_models(), "resnet50")

    def build(shape: tuple[int, int, int], classes: int, **options: Any) -> nn.Module:
        channels, *edges = image_shape(shape)
        if options.get("pretrained"):
            raise ValueError("it starts from random weights; pretrained ones are never downloaded")
        config = timm.get_pretrained_cfg(name, allow_unregistered=True)
        if getattr(config, "fixed_input_size", False):  # The model is built for one image size.
            options = {"img_size": tuple(edges), **options}
        network: nn.Module = timm.create_model(
            name, num_classes=classes, in_chans=channels, **options
        )
        return network

    return build
