"""The built-in models, by their published sizes."""

import copy
from itertools import pairwise

import pytest
import torch
from torch import nn

from builders import a_run
from scalewise import plugins
from scalewise.frameworks.part_options import options_for
from scalewise.frameworks.torch import workload_factory
from scalewise.frameworks.torch.models.gpt import gpt
from scalewise.frameworks.torch.models.mlp import mlp
from scalewise.frameworks.torch.models.mnist_cnn import mnist_cnn
from scalewise.frameworks.torch.models.parts import Parts, blocks_of
from scalewise.frameworks.torch.models.resnet import resnet50, resnet50v2
from scalewise.frameworks.torch.models.vit import vit, vit_ti16

IMAGE = (3, 224, 224)
VITS = {
    # torchvision's tables have B/16, L/16 and H/14, timm's Ti/16 and S/16 (5.7 and 22.05 M).
    "vit-ti16": 5_717_416,
    "vit-s16": 22_050_664,
    "vit-b16": 86_567_656,
    "vit-l16": 304_326_632,
    "vit-h14": 632_045_800,
}
GPTS = {
    # Vocabulary, length and size: GPT-2 small and medium, the table of GPT-3 in millions.
    "gpt-124m": (50_257, 1024, 124_439_808),
    "gpt-350m": (50_257, 1024, 354_823_168),
    "gpt-760m": (50_257, 2048, 760_300_032),
    "gpt-1.3b": (50_257, 2048, 1_315_723_264),
}
NAMED = [*VITS, *GPTS, "gpt-nano", "gpt-micro", "gpt-mini", "resnet50", "resnet50v2"]


def parameters(model):
    return sum(each.numel() for each in model.parameters())


def outline(name, shape=IMAGE, classes=1000, **options):
    """Return a named model without its weights."""
    spec = a_run(framework="torch", workload=name, options=options)
    factory = workload_factory(spec)
    with torch.device("meta"):
        return factory(shape, classes, **options_for(factory, spec))


@pytest.mark.parametrize(("name", "published"), VITS.items())
def test_vision_transformers_have_their_published_sizes(name, published):
    model = outline(name)
    assert parameters(model) == published
    assert {each.device.type for each in model.parameters()} == {"meta"}


def test_the_largest_has_631_million_parameters_with_200_classes():
    assert parameters(outline("vit-h14", classes=200)) == 631_021_000


@pytest.mark.parametrize("size", ["ti", "s", "b", "l", "h"])
def test_patches_change_only_what_sees_them(size):
    large, small = outline(f"vit-{size}16"), outline(f"vit-{size}14")
    width = large.get_submodule("head").in_features
    pixels, positions = 3 * (16**2 - 14**2), 16**2 - 14**2
    assert parameters(large) - parameters(small) == width * (pixels - positions)


@pytest.mark.parametrize(("name", "sizes"), GPTS.items())
def test_decoders_have_their_published_sizes(name, sizes):
    vocabulary, length, published = sizes
    assert parameters(outline(name, length, vocabulary)) == published


@pytest.mark.parametrize(
    ("name", "vocabulary", "length", "millions"),
    # minGPT prints 0.09M for sorting three numbers with gpt-nano; the others from its widths.
    [("gpt-nano", 3, 11, 0.09), ("gpt-micro", 65, 128, 0.82), ("gpt-mini", 65, 128, 2.71)],
)
def test_small_decoders_have_the_sizes_of_mingpt(name, vocabulary, length, millions):
    assert round(parameters(outline(name, length, vocabulary)) / 1e6, 2) == millions


def test_a_decoder_that_is_not_tied_has_another_layer():
    tied, free = (outline("gpt-124m", 1024, 50_257, tied=each) for each in (True, False))
    assert parameters(free) - parameters(tied) == 50_257 * 768


@pytest.mark.parametrize(
    ("name", "learned", "statistics"),
    [
        # torchvision's table; Keras' totals of 25,613,800 and 60,380,648 hold the means and
        # variances of batch normalization, which are not learned.
        ("resnet50", 25_557_032, None),
        ("resnet50v2", 25_568_360, 25_613_800 - 25_568_360),
        ("resnet152v2", 60_236_904, 60_380_648 - 60_236_904),
    ],
)
def test_residual_networks_have_their_published_sizes(name, learned, statistics):
    model = outline(name)
    assert parameters(model) == learned
    kept = [each for name, each in model.named_buffers() if name.endswith(("mean", "var"))]
    assert statistics is None or sum(each.numel() for each in kept) == statistics


@pytest.mark.parametrize("name", NAMED)
def test_every_named_model_computes_logits_and_is_made_of_blocks(name):
    tokens = name.startswith("gpt")
    shape, classes = (32, 50) if tokens else (IMAGE, 7)
    model = outline(name, shape, classes)
    inputs = torch.zeros(2, 32, dtype=torch.long) if tokens else torch.zeros(2, *IMAGE)
    assert model(inputs.to("meta")).shape == ((2, 32, 50) if tokens else (2, 7))
    assert isinstance(model, Parts) and len(blocks_of(model)) == len(model.blocks) >= 3


def test_every_workload_that_is_registered_can_be_made():
    for name in plugins.framework_parts("workloads", "torch"):
        shape = 16 if name.startswith("gpt") else (3, 112, 112)
        assert parameters(outline(name, shape, 10)) > 0


def test_a_tied_layer_is_saved_once_and_learns_from_both_ends():
    torch.manual_seed(0)
    model = gpt(8, 11, width=8, depth=1, heads=2, tied=True)
    assert not [name for name in model.state_dict() if name.startswith("head")]
    copied = copy.deepcopy(model)
    tokens = torch.randint(11, (2, 8))
    copied(tokens).sum().backward()
    table = copied.get_parameter("tokens.weight").grad
    assert table is not None and bool((table.abs().sum(1) > 0).all()), "words that were not read"
    assert model.get_parameter("tokens.weight").grad is None


def test_a_published_transformer_begins_as_it_was_published():
    torch.manual_seed(0)
    image = torch.rand(2, 3, 32, 32)
    model = vit_ti16((3, 32, 32), 10, depth=2)
    assert not model(image).any(), "the classifier begins at nothing"
    # torchvision's: Glorot's, but for the last layer of attention, which is any linear layer.
    for name, squared in {
        "attention.qkv": 2 / (192 + 3 * 192), "attention.out": 1 / (3 * 192),
        "dense.0": 2 / (192 + 768), "dense.2": 2 / (192 + 768),
    }.items():  # fmt: skip
        spread = model.get_parameter(f"block0.{name}.weight").std().item()
        assert spread == pytest.approx(squared**0.5, rel=0.02)
    assert {each.eps for each in model.modules() if isinstance(each, nn.LayerNorm)} == {1e-6}
    decoder = gpt(8, 500, width=64, depth=8, heads=2, tied=True)
    assert decoder.get_parameter("tokens.weight").std().item() == pytest.approx(0.02, rel=0.05)
    added = decoder.get_parameter("block7.attention.out.weight").std().item()
    assert added == pytest.approx(0.02 / 4, rel=0.05)


def test_a_seed_gives_the_same_weights():
    models = []
    for _ in range(2):
        torch.manual_seed(3)
        models.append(vit((1, 8, 8), 10, depth=1, class_token=True).state_dict())
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


@pytest.mark.parametrize(
    ("name", "shape"), [("resnet50", (3, 32, 32)), ("vit-ti16", (3, 32, 32)), ("gpt", 8)]
)
def test_stages_one_behind_the_other_are_the_whole_model(name, shape):
    torch.manual_seed(0)
    spec = a_run(framework="torch", workload=name)
    model = workload_factory(spec)(shape, 5).eval()
    inputs = torch.randint(5, (2, 8)) if name == "gpt" else torch.rand(2, *shape)
    passed = inputs
    for number in range(3):
        passed = model.stage(number, 3)(passed)
        assert passed.is_contiguous(), "only whole memory can be sent"
    assert torch.equal(passed, model(inputs))


@pytest.mark.parametrize("whole", [resnet50, resnet50v2])
def test_residual_networks_keep_the_layout_of_memory(whole):
    torch.manual_seed(0)
    model = whole((3, 32, 32), 5).eval()
    images = torch.rand(2, 3, 32, 32)
    expected = model(images)
    last = model.to(memory_format=torch.channels_last)
    seen = []
    last.get_submodule("block3").register_forward_hook(lambda module, given, got: seen.append(got))
    assert torch.allclose(
        last(images.to(memory_format=torch.channels_last)), expected, rtol=1e-3, atol=1e-4
    )
    assert seen[0].is_contiguous(memory_format=torch.channels_last)


def test_the_mnist_network_has_the_size_of_the_examples():
    assert parameters(mnist_cnn((1, 28, 28), 10)) == 1_199_882


@pytest.mark.parametrize("shape", [(1, 28, 28), (1, 8, 8), (3, 9, 13)])
@pytest.mark.parametrize("model", [mnist_cnn, mlp])
def test_models_take_any_image_size(model, shape):
    options = {"hidden": [32, 16]} if model is mlp else {}
    assert model(shape, 7, **options)(torch.zeros(2, *shape)).shape == (2, 7)


def test_the_dense_network_halves_from_8192_to_64():
    widths = [8192, 4096, 2048, 1024, 512, 256, 128, 64]
    sizes = [784, *widths, 10]
    expected = sum(a * b + b for a, b in pairwise(sizes))
    assert parameters(mlp((1, 28, 28), 10)) == expected
    assert parameters(mlp((3, 28, 28), 10)) == expected, "it sees grey pixels"


@pytest.mark.parametrize(
    ("model", "shape", "said"),
    [
        (vit, 16, "it learns from images"),
        (mnist_cnn, 16, "it learns from images"),
        (mlp, 16, "it learns from images"),
        (resnet50, 16, "it learns from images"),
        (gpt, (1, 8, 8), "it learns from tokens"),
        (vit, (1, 9, 8), "patches of 4 do not fit an image of 9x8"),
    ],
)
def test_a_model_says_what_data_it_is_for(model, shape, said):
    with pytest.raises(ValueError, match=said):
        model(shape, 10)
