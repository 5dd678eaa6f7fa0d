"""Parts found by kind and name, ours and strangers' alike."""

import json
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest

from builders import a_run
from scalewise import plugins
from scalewise.errors import PluginError
from scalewise.spec import StrategyTraits
from scalewise.spec import strategy_traits as declared

STRATEGIES = ("ddp", "fsdp", "hsdp", "pipeline", "tensor", "zero1")
LAWS = (
    "amdahl", "communication", "complete", "constant", "gustafson", "pmnf", "power", "universal",
)  # fmt: skip
GPTS = (
    "gpt",
    *(f"gpt-{size}" for size in ["1.3b", "124m", "350m", "760m", "micro", "mini", "nano"]),
)
RESNETS = ("resnet152v2", "resnet50", "resnet50v2")
VITS = ("vit", *(f"vit-{size}{patch}" for size in ["b", "h", "l", "s", "ti"] for patch in (14, 16)))
WORKLOADS = (*GPTS, "mlp", "mnist-cnn", *RESNETS, *VITS)
JAXES = ("mnist-cnn", "vit")
LIBRARIES = ("timm", "torchvision", "transformers")
TENSORFLOW = {
    "strategies": {"tensorflow.mirrored", "tensorflow.multiworker"},
    "workloads": {"tensorflow.mnist-cnn", "tensorflow.resnet50v2", "tensorflow.resnet152v2"},
}
ENGINES_OWN = (*(f"deepspeed.zero{stage}" for stage in range(4)), "horovod.allreduce")
TAKEN = {"deepspeed.*", "horovod.*"}
"""Engines that take all parts of torch."""
BUILT_IN = {
    "launchers": {"local", "slurm"},
    "frameworks": {"deepspeed", "fake", "horovod", "jax", "tensorflow", "torch"},
    "strategies": {f"torch.{name}" for name in STRATEGIES}
    | {"jax.sharded", *ENGINES_OWN}
    | TENSORFLOW["strategies"],
    "workloads": {f"torch.{name}" for name in WORKLOADS}
    | {f"jax.{name}" for name in JAXES}
    | TAKEN
    | TENSORFLOW["workloads"],
    "libraries": {f"torch.{name}" for name in LIBRARIES} | TAKEN,
    "laws": set(LAWS),
    "traits": set(),
}
WITHOUT_ENGINES = """
import json, sys
from scalewise import plugins
from scalewise.errors import PluginError

sys.modules["torch"] = sys.modules["jax"] = None  # As if they were not installed.
told = {}
for kind in plugins.KINDS:
    for name in plugins.available(kind):
        framework, _, short = name.partition(".") if "." in name else ("", "", name)
        if short == plugins.WILDCARD:
            continue
        try:
            plugins.load(kind, short, framework=framework)
            told[name] = "loaded"
        except PluginError as problem:
            told[name] = [str(problem), problem.hint]
print(json.dumps(told))
"""


@pytest.fixture(autouse=True)
def _fresh():
    for cached in (plugins.available, declared.traits_of):
        cached.cache_clear()
    yield
    for cached in (plugins.available, declared.traits_of):
        cached.cache_clear()


@pytest.fixture
def registered(monkeypatch):
    """Register parts as other packages would, in place of all that are there."""

    def register(kind, **values):
        points = [
            EntryPoint(name.replace("__", "."), each, f"scalewise.{kind}")
            for name, value in values.items()
            for each in ([value] if isinstance(value, str) else value)
        ]

        def entry_points(*, group):
            return [point for point in points if point.group == group]

        monkeypatch.setattr(plugins, "entry_points", entry_points)

    return register


@pytest.mark.parametrize("kind", plugins.KINDS)
def test_every_built_in_is_an_entry_point(kind):
    found = plugins.available(kind)
    ours = {name for name, point in found.items() if point.value.startswith("scalewise.")}
    assert ours == BUILT_IN[kind]
    assert list(found) == sorted(found)


@pytest.mark.parametrize(("kind", "name"), [("launchers", "local"), ("frameworks", "fake")])
def test_a_built_in_is_loaded_by_its_name(kind, name):
    part = plugins.load(kind, name)
    assert f"{part.__module__}:{part.__qualname__}" == plugins.available(kind)[name].value


def test_without_engines_only_what_needs_them_is_missing():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_ENGINES], capture_output=True, text=True, check=True
    )
    needs = "{} '{}' needs torch, which is not installed"
    extra = "pip install 'scalewise[torch]'"
    no_jax = "{} '{}' needs jax, which is not installed"
    jax = "pip install 'scalewise[jax]'"
    assert json.loads(done.stdout) == {
        "local": "loaded",
        "slurm": "loaded",
        "fake": "loaded",
        "torch": "loaded",
        "tensorflow": "loaded",
        **{name: "loaded" for names in TENSORFLOW.values() for name in names},
        "deepspeed": "loaded",
        "horovod": "loaded",
        **{
            name: [
                needs.format("strategy", name.partition(".")[2]),
                "build Horovod with `make horovod` in a checkout of scalewise"
                if name.startswith("horovod")
                else "pip install 'scalewise[deepspeed]'",
            ]
            for name in ENGINES_OWN
        },
        "jax": "loaded",
        "jax.sharded": [no_jax.format("strategy", "sharded"), jax],
        **{f"jax.{name}": [no_jax.format("workload", name), jax] for name in JAXES},
        **dict.fromkeys(LAWS, "loaded"),
        **{f"torch.{name}": [needs.format("strategy", name), extra] for name in STRATEGIES},
        **{f"torch.{name}": [needs.format("workload", name), extra] for name in WORKLOADS},
        **{f"torch.{name}": [needs.format("library", name), extra] for name in LIBRARIES},
    }


def test_every_built_in_strategy_declares_its_traits_and_has_a_row_in_the_guide():
    assert set(declared.BUILT_IN) == BUILT_IN["strategies"]
    guide = Path(__file__).parents[1].joinpath("docs/guides/strategies.md").read_text()
    assert [name for name in STRATEGIES if f"| `{name}` |" not in guide] == []


def test_a_strangers_strategy_may_declare_its_traits(registered, monkeypatch):
    mine = StrategyTraits(degree="shard", within_node=True, starts=("srun",))
    package = SimpleNamespace(MINE=mine, WRONG="no traits")
    monkeypatch.setitem(sys.modules, "a_stranger", package)
    registered("traits", torch__mine="a_stranger:MINE", torch__wrong="a_stranger:WRONG")
    run = a_run(framework="torch", workload="mlp", strategy="mine", topology="2x4", start="srun")
    assert run.traits == mine
    assert (run.degrees.shard, run.start, run.started_by) == (4, None, "srun")
    with pytest.raises(PluginError, match=r"traits 'torch\.wrong' are no StrategyTraits"):
        declared.traits_of("torch", "wrong")


def test_a_strategy_without_traits_starts_as_its_framework_and_splits_nothing():
    assert declared.traits_of("torch", "mine") == StrategyTraits(
        starts=("torchrun", "srun", "mpirun")
    )
    assert declared.traits_of("tensorflow", "mine").starts == ("node", "plain", "srun", "mpirun")
    assert declared.traits_of("mine", "mine") == StrategyTraits()
    fake = a_run(framework="fake", strategy="fsdp", topology="1x4")
    assert (fake.degrees.shard, fake.started_by) == (4, "direct")


def test_listing_imports_nothing(registered):
    registered("frameworks", mine="no_such_package.anywhere:Framework")
    assert list(plugins.available("frameworks")) == ["mine"]


def test_a_strangers_part_is_loaded_like_ours(registered):
    registered("frameworks", mine="collections:OrderedDict")
    assert plugins.load("frameworks", "mine").__name__ == "OrderedDict"


@pytest.mark.parametrize(
    ("kind", "name", "framework", "said", "hint"),
    [
        (
            "launchers",
            "locla",
            "",
            "no launcher named 'locla'; there are: local, slurm",
            "did you mean 'local'?",
        ),
        (
            "workloads",
            "mnist-cn",
            "torch",
            "no workload named 'mnist-cn' for framework 'torch'; "
            f"there are: {', '.join(WORKLOADS)}",
            "did you mean 'mnist-cnn'?",
        ),
        (
            "workloads",
            "vit-h41",
            "torch",
            f"no workload named 'vit-h41' for framework 'torch'; there are: {', '.join(WORKLOADS)}",
            "did you mean 'vit-h14'?",
        ),
        (
            "workloads",
            "vit",
            "tensorflow",
            "no workload named 'vit' for framework 'tensorflow'; "
            "there are: mnist-cnn, resnet152v2, resnet50v2",
            "frameworks that have it: jax, torch",
        ),
        (
            "frameworks",
            "zzz",
            "",
            "no framework named 'zzz'; there are: deepspeed, fake, horovod, jax, tensorflow, torch",
            "`scalewise plugins` shows all",
        ),
        (
            "workloads",
            "mlp",
            "fake",
            "no workload named 'mlp' for framework 'fake'; there are none",
            "frameworks that have it: torch",
        ),
    ],
)
def test_an_unknown_name_is_answered_with_the_list_and_the_nearest(
    kind, name, framework, said, hint
):
    with pytest.raises(PluginError) as problem:
        plugins.find(kind, name, framework=framework)
    assert str(problem.value) == said
    assert problem.value.hint == hint


def test_a_part_of_one_framework_is_not_found_in_another(registered):
    registered("strategies", torch__ddp="a:b", jax__ddp="c:d", torchlike__ddp="e:f")
    assert plugins.find("strategies", "ddp", framework="jax").value == "c:d"
    assert plugins.find("strategies", "ddp", framework="torch").value == "a:b"


def test_an_engine_may_take_all_parts_of_another(monkeypatch):
    points = {
        "frameworks": [("torch", "a:Torch"), ("mine", "b:Mine")],
        "workloads": [("torch.mlp", "a:mlp"), ("torch.vit", "a:vit"), ("mine.*", "a:Torch"),
                      ("mine.vit", "b:vit")],
    }  # fmt: skip

    def entry_points(*, group):
        kind = group.removeprefix("scalewise.")
        return [EntryPoint(name, value, group) for name, value in points[kind]]

    monkeypatch.setattr(plugins, "entry_points", entry_points)
    found = {
        name: point.value for name, point in plugins.framework_parts("workloads", "mine").items()
    }
    assert found == {"mlp": "a:mlp", "vit": "b:vit"}
    with pytest.raises(PluginError, match="'mine'; there are: mlp, vit"):
        plugins.find("workloads", "*", framework="mine")


def test_two_packages_with_one_name_are_refused(registered):
    registered("launchers", slurm=["one.package:Slurm", "other.package:Slurm"])
    with pytest.raises(PluginError, match="'slurm'") as problem:
        plugins.available("launchers")
    assert "one.package:Slurm and other.package:Slurm" in str(problem.value)
    assert problem.value.hint == "uninstall one of them"


def test_one_part_registered_twice_is_one_part(registered):
    registered("launchers", slurm=["one.package:Slurm", "one.package:Slurm"])
    assert list(plugins.available("launchers")) == ["slurm"]


def test_a_missing_dependency_of_ours_names_the_extra(registered, monkeypatch):
    monkeypatch.setitem(sys.modules, "scalewise.frameworks.fake", None)
    registered("strategies", torch__mine="scalewise.frameworks.fake:Fake")
    with pytest.raises(PluginError, match="'mine' needs scalewise") as told:
        plugins.load("strategies", "mine", framework="torch")
    assert told.value.hint == "pip install 'scalewise[torch]'"


def test_a_missing_dependency_of_a_stranger_is_named_itself(registered):
    registered("strategies", mine="no_such_package:part")
    with pytest.raises(PluginError, match="strategy 'mine' needs no_such_package") as told:
        plugins.load("strategies", "mine")
    assert told.value.hint == "pip install no_such_package"


def test_a_dependency_that_is_there_but_broken_is_quoted(registered, tmp_path, monkeypatch):
    (tmp_path / "broken_part.py").write_text('raise ImportError("libfast.so.3: cannot open")\n')
    monkeypatch.syspath_prepend(tmp_path)
    registered("frameworks", mine="broken_part:Framework")
    with pytest.raises(PluginError, match=r"libfast\.so\.3: cannot open"):
        plugins.load("frameworks", "mine")


def test_a_part_that_is_not_where_it_was_registered_is_said(registered):
    registered("frameworks", mine="collections:NoSuchFramework")
    with pytest.raises(PluginError, match="NoSuchFramework"):
        plugins.load("frameworks", "mine")
