"""Image classifiers of torchvision, by their names in torchvision."""

from typing import Any

from torch import nn

from scalewise.frameworks.torch.libraries import Factory, import_library, unknown_model
from scalewise.frameworks.torch.models.parts import image_shape

COLOURS = 3
"""Input channels of all models. Grey images have one channel, which is repeated."""
AUXILIARY_HEADS = ("googlenet", "inception_v3")
"""Models with auxiliary classifiers, which are switched off here."""


def model(name: str) -> Factory:
    """Return the factory of a model of torchvision."""
    models = import_library("torchvision").models
    names = models.list_models(module=models)
    if name not in names:
        raise unknown_model("torchvision", name, names, "resnet50")

    def build(shape: tuple[int, int, int], classes: int, **options: Any) -> nn.Module:
        channels, height, width = image_shape(shape)
        if channels not in (1, COLOURS):
            raise ValueError(f"it takes images of 1 or 3 channels, and these have {channels}")
        if name.startswith("vit_"):
            if height != width:
                raise ValueError(f"it takes square images, and these are {height}x{width}")
            options = {"image_size": height, **options}
        elif name.startswith("maxvit_"):
            options = {"input_size": (height, width), **options}
        elif name in AUXILIARY_HEADS:
            options = {"aux_logits": False, "init_weights": True, **options}
        network: nn.Module = models.get_model(name, weights=None, num_classes=classes, **options)
        if channels == 1:
            network.register_forward_pre_hook(
                lambda _, inputs: (inputs[0].expand(-1, COLOURS, -1, -1),)
            )
        return network

    return build
