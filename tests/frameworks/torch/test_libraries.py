"""Models that lie elsewhere: of libraries, where they are installed, and of a user's own module."""

import json
import sys

import pytest
import torch
from torch import nn

from builders import a_run
from scalewise.errors import PluginError, SpecError
from scalewise.frameworks.data_source import Source
from scalewise.frameworks.torch import Torch, workload_factory
from scalewise.frameworks.torch.input.data_sets import load
from scalewise.frameworks.torch.libraries import import_library
from scalewise.frameworks.torch.models.block_compile import apply_activation_checkpointing
from scalewise.frameworks.torch.models.parts import blocks_of
from scalewise.frameworks.torch.session import initial_model
from scalewise.frameworks.torch.task import Task, build_model, optimizer_factory

OWN = """
from torch import nn


def needs_numbers(shape, classes):
    import torch
    return nn.Sequential(nn.Flatten(), nn.Linear(int(torch.tensor(64).item()), classes))


def nothing(shape, classes):
    return None


def silent(shape, classes):
    class Silent(nn.Linear):
        def forward(self, x):
            return None
    return Silent(4, classes)


def narrow(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes - 5))


def a_map(shape, classes):
    return nn.Conv2d(1, classes, 1)


def frozen(shape, classes):
    return nn.Linear(4, classes).requires_grad_(False)


def empty(shape, classes):
    return nn.ReLU()


def fails(shape, classes):
    raise ValueError("boom")


def leaves(shape, classes):
    raise SystemExit(3)


SIZE = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Put a module of the user's own on the path."""
    (tmp_path / "little_models.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("little_models", None)


@pytest.fixture
def operators():
    """Have the operators that a torchvision for other devices lacks, so that it can be imported."""
    if not hasattr(torch.ops.torchvision, "nms"):
        shim = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            shim.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        KEPT.append(shim)


KEPT: list[torch.library.Library] = []


def a_model(name, **changes):
    return a_run(**{"framework": "torch", "workload": name, "batch": 8, "lr": 0.02, **changes})


def losses(spec, steps=4):
    """Check a run, then train its model a few steps on one batch."""
    Torch().check(spec)
    data = load(Source.of_run(spec), spec)
    here = torch.device("cpu")
    model = initial_model(spec, data, here)
    apply_activation_checkpointing(model, spec)
    task = Task(model, optimizer_factory(spec))
    learner = task.optimizer(model.parameters())
    inputs, labels = data.train.batch(torch.arange(8), 0)
    inputs = data.preprocessing.build(here)(inputs)
    found = []
    for _ in range(steps):
        output, loss = task.forward(model, inputs, labels)
        loss.backward()
        learner.step()
        learner.zero_grad()
        found.append(loss.item())
    assert output.shape[-1] == data.classes
    return found


def learns(spec):
    found = losses(spec)
    return found[-1] < found[0]


@pytest.mark.usefixtures("own")
def test_a_function_of_ones_own_makes_a_workload():
    spec = a_model("small_model:residual", options={"width": 24, "depth": 4}, recompute="full")
    assert learns(spec)
    model = build_model(spec, (1, 8, 8), 10)
    assert [type(each).__name__ for each in blocks_of(model)] == ["Block"] * 4
    assert "layers.3.dense.0.weight" in model.state_dict(), "names stay what they are"


@pytest.mark.usefixtures("own")
def test_what_needs_numbers_while_it_is_built_is_checked_on_the_cpu():
    Torch().check(a_model("little_models:needs_numbers"))


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("run", "said", "hint"),
    [
        ({"workload": "small_model:residua"}, "has no 'residua'", "did you mean 'residual'?"),
        ({"workload": "littel:residual"}, "there is no module 'littel'", "PYTHONPATH"),
        ({"workload": "tim:resnet18"}, "there is no module 'tim'", "did you mean 'timm'?"),
        ({"workload": "little_models:SIZE"}, "is not a function", "(shape, classes"),
        (
            {"workload": "little_models:nothing"},
            "returns NoneType, not a torch.nn.Module",
            "return",
        ),
        ({"workload": "little_models:empty"}, "returns ReLU, which has no trainable", "return"),
        ({"workload": "little_models:frozen"}, "returns Linear, which has no trainable", "return"),
        (
            {"workload": "little_models:fails"},
            "little_models:fails cannot be built",
            "import fails",
        ),
        ({"workload": "little_models:leaves"}, "it calls sys.exit", "import leaves"),
        ({"workload": "little_models:other"}, "has no 'other'", "(shape, classes"),
        ({"workload": "os:system"}, "os:system cannot be built", "from os import system"),
        (
            {"workload": "small_model:residual", "options": {"widht": 3}},
            "no option 'widht'",
            "width",
        ),
        (
            {"workload": "small_model:residual", "options": {"width": "3"}},
            "width must be a whole",
            "",
        ),
        (
            {"workload": "small_model:residual", "data": "tokens:100"},
            "cannot be built for 64",
            "import residual",
        ),
        (
            {"workload": "small_model:residual", "strategy": "pipeline", "topology": "1x2"},
            "does not say in which order its blocks run",
            "Parts",
        ),
        (
            {"workload": "small_model:residual", "strategy": "tensor", "topology": "1x2"},
            "does not say how its layers may be split",
            "tensor parallelism is for",
        ),
        ({"workload": "little_models:"}, "names no model of little_models", "little_models:NAME"),
        ({"workload": "transformers:"}, "names no model of transformers", "transformers:NAME"),
        ({"workload": ":tiny"}, "does not say where 'tiny' is", "write MODULE:FUNCTION"),
    ],
)
def test_what_leads_nowhere_is_refused_before_any_rank_starts(run, said, hint):
    with pytest.raises((PluginError, SpecError)) as told:
        Torch().check(a_model(**{"name": run["workload"], **without(run, "workload")}))
    assert said in str(told.value)
    assert hint in told.value.hint


def without(values, name):
    return {key: value for key, value in values.items() if key != name}


@pytest.mark.usefixtures("own")
def test_a_model_that_gives_no_logits_is_told():
    model = build_model(a_model("little_models:silent"), (1, 8, 8), 10)
    with pytest.raises(SpecError, match="returns NoneType without logits"):
        model(torch.zeros(2, 4))


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(("name", "given"), [("narrow", (2, 5)), ("a_map", (2, 10, 8, 8))])
def test_a_model_whose_logits_fit_no_label_is_told_with_both_shapes(name, given):
    model = build_model(a_model(f"little_models:{name}"), (1, 8, 8), 10)
    with pytest.raises(SpecError) as told:
        model(torch.zeros(2, 1, 8, 8))
    assert f"{name} returns logits of shape {given}, but 10 classes need (2, 10)" in str(told.value)


def test_a_package_that_is_missing_is_named_with_its_command(monkeypatch):
    for name in ("timm", "torchvision", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(PluginError, match=f"needs {name}, which is not installed") as told:
            Torch().check(a_model(f"{name}:something"))
        assert told.value.hint == f"pip install {name}"


def test_a_package_that_is_broken_is_quoted(tmp_path, monkeypatch):
    (tmp_path / "broken_zoo.py").write_text('raise RuntimeError("operator does not exist")\n')
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PluginError, match="broken_zoo cannot be imported: operator does not exist"):
        workload_factory(a_model("broken_zoo:model"))
    with pytest.raises(PluginError, match="cannot be imported: operator does not exist"):
        import_library("broken_zoo")
    (tmp_path / "zoo_of_nms.py").write_text('raise RuntimeError("operator torchvision::nms")\n')
    with pytest.raises(PluginError) as told:
        import_library("zoo_of_nms")
    assert "install the torchvision that is built for" in told.value.hint
    (tmp_path / "lazy_zoo.py").write_text(
        "def model(shape, classes):\n"
        "    try:\n"
        "        import zoo_of_nms\n"
        "    except RuntimeError as broken:\n"
        "        raise ModuleNotFoundError('no model') from broken\n"
    )
    with pytest.raises(
        PluginError, match="needs a module that cannot be imported: no model"
    ) as told:
        build_model(a_model("lazy_zoo:model"), (1, 8, 8), 10)
    assert "install the torchvision that is built for" in told.value.hint


@pytest.mark.libraries
@pytest.mark.usefixtures("operators")
def test_no_weights_are_fetched():
    with pytest.raises(SpecError, match="pretrained ones are never downloaded"):
        Torch().check(a_model("timm:resnet18", options={"pretrained": True}))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ({}, 0),
        ({"convolutions": nn.Sequential(nn.Conv2d(1, 1, 1), nn.Conv2d(1, 1, 1))}, 0),
        ({"one": nn.ModuleList([nn.TransformerEncoderLayer(8, 2)])}, 0),
        # Stages of a network: the longest row decides, all rows of its kind are taken.
        (
            {
                "stem": nn.Sequential(nn.Conv2d(1, 4, 1), nn.ReLU()),
                "a": nn.Sequential(*[nn.TransformerEncoderLayer(8, 2) for _ in range(3)]),
                "b": nn.Sequential(nn.TransformerEncoderLayer(8, 2)),
                "experts": nn.ModuleList([nn.Sequential(nn.Linear(2, 2)) for _ in range(2)]),
            },
            4,
        ),
    ],
)
def test_the_longest_row_of_modules_of_one_kind_is_the_blocks(rows, expected):
    model = nn.ModuleDict(rows)
    assert len(blocks_of(model)) == expected


TINY = {
    "vit": {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
            "intermediate_size": 32, "patch_size": 4},
    "gpt2": {"n_embd": 16, "n_layer": 3, "n_head": 2},
    "llama": {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
              "num_key_value_heads": 2, "intermediate_size": 32},
}  # fmt: skip


@pytest.mark.libraries
@pytest.mark.usefixtures("operators")
@pytest.mark.parametrize("name", TINY)
def test_a_type_of_transformers_is_built_for_the_data_and_learns(name):
    data = None if name == "vit" else "tokens:100x16"
    spec = a_model(f"transformers:{name}", options=TINY[name], data=data, recompute="full", lr=0.1)
    assert learns(spec)
    depth = TINY[name].get("num_hidden_layers") or TINY[name]["n_layer"]
    model = build_model(spec, 16 if data else (1, 8, 8), 10)
    assert len(blocks_of(model)) == depth


@pytest.mark.libraries
@pytest.mark.usefixtures("operators")
def test_a_configuration_in_a_file_is_a_model(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", **TINY["gpt2"]}))
    for path in (tmp_path, tmp_path / "config.json"):
        assert learns(a_model(f"transformers:{path}", data="tokens:100x16", lr=0.1))
    (tmp_path / "gpt2").mkdir()
    monkeypatch.chdir(tmp_path)
    assert workload_factory(a_model("transformers:gpt2", data="tokens:100x16"))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(PluginError, match="does not configure a Transformers model"):
        workload_factory(a_model(f"transformers:{tmp_path}"))


@pytest.mark.libraries
@pytest.mark.usefixtures("operators")
@pytest.mark.parametrize(
    ("run", "said", "hint"),
    [
        ({"name": "transformers:gtp2"}, "transformers has no model 'gtp2'", "did you mean 'gpt2'?"),
        (
            {"name": "transformers:gpt2"},
            "no image classifier of type 'gpt2', and the data is images",
            "for example transformers:vit",
        ),
        (
            {"name": "transformers:vit", "data": "tokens:100"},
            "no decoder of type 'vit', and the data is tokens",
            "for example transformers:gpt2",
        ),
        (
            {"name": "transformers:vit", "options": {"hiden_size": 3}},
            "its configuration has no 'hiden_size'; did you mean 'hidden_size'?",
            "",
        ),
    ],
)
def test_what_transformers_does_not_have_is_refused(run, said, hint):
    with pytest.raises((PluginError, SpecError)) as told:
        Torch().check(a_model(**run))
    assert said in str(told.value)
    assert hint in told.value.hint


@pytest.mark.libraries
@pytest.mark.usefixtures("operators")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("torchvision:shufflenet_v2_x0_5", {}),
        ("timm:test_resnet", {}),
        ("timm:vit_tiny_patch16_224", {"depth": 2}),
    ],
)
def test_image_models_of_libraries_learn(name, options):
    assert learns(a_model(name, data="synthetic:80x32x32", options=options, lr=0.01))


@pytest.mark.libraries
@pytest.mark.usefixtures("operators")
@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("torchvision:resnet50", 16),
        ("torchvision:vit_b_16", 12),
        ("torchvision:swin_t", 12),
        ("timm:resnet50", 16),
        ("timm:convnext_tiny", 18),
        ("timm:vit_base_patch16_224", 12),
    ],
)
def test_the_blocks_of_libraries_models_are_found(name, blocks):
    spec = a_model(name)
    with torch.device("meta"):
        model = build_model(spec, (1, 64, 64), 10)
        assert model(torch.zeros(2, 1, 64, 64)).shape == (2, 10)
    assert len(blocks_of(model)) == blocks


@pytest.mark.libraries
@pytest.mark.usefixtures("operators")
@pytest.mark.parametrize("name", ["torchvision:resnet05", "timm:resnet05"])
def test_a_name_that_a_library_does_not_have_is_answered_with_the_nearest(name):
    with pytest.raises(PluginError, match="has no model 'resnet05'") as told:
        Torch().check(a_model(name))
    assert told.value.hint == "did you mean 'resnet50'?"
