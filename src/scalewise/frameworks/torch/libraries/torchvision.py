"""Image classifiers of torchvision, by its names for them."""

from typing import Any

from torch import Tensor, nn

from scalewise.frameworks.torch.libraries import Factory, image, import_library, unknown_model

COLOURS = 3
"""What all of them take."""
SIDE_EXITS = ("googlenet", "inception_v3")
"""They learn from classifiers in their middle too; here as all others do, from the last."""


def model(name: str) -> Factory:
    """Return what makes torchvision's model of this name."""
    models = import_library("torchvision").models
    known = models.list_models(module=models)
    if name not in known:
        raise unknown_model("torchvision", name, known, "resnet50")

    def build(shape: tuple[int, int, int], classes: int, **options: Any) -> nn.Module:
        channels, height, width = image(shape)
        if channels not in (1, COLOURS):
            raise ValueError(
                f"it takes images of 1 or {COLOURS} channels, and these have {channels}"
            )
        if name.startswith("vit_"):
            if height != width:
                raise ValueError(f"it takes square images, and these are {height}x{width}")
            options = {"image_size": height, **options}
        elif name.startswith("maxvit_"):
            options = {"input_size": (height, width), **options}
        elif name in SIDE_EXITS:
            options = {"aux_logits": False, "init_weights": True, **options}
        made: nn.Module = models.get_model(name, weights=None, num_classes=classes, **options)
        if channels == 1:
            made.register_forward_pre_hook(_in_colours)
        return made

    return build


def _in_colours(module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    """Show a grey image as one whose colours are alike."""
    return (inputs[0].expand(-1, COLOURS, -1, -1),)
