"""What may be asked for, what is refused, and which runs are the same run."""

import json
from dataclasses import FrozenInstanceError, fields
from datetime import date
from math import inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from builders import a_run, a_study, run_values
from scalewise.errors import SpecError, shown
from scalewise.spec import Parallelism, RunSpec, StudySpec, Topology


def through_json(values):
    return json.loads(json.dumps(values))


@pytest.mark.parametrize(
    ("given", "nodes", "devices", "text"),
    [("2x8", 2, 8, "2x8"), ("8", 1, 8, "1x8"), (8, 1, 8, "1x8"), ("1x1", 1, 1, "1x1")],
)
def test_a_topology_is_read_and_written(given, nodes, devices, text):
    found = Topology.parse(given)
    assert (found.nodes, found.devices, found.world) == (nodes, devices, nodes * devices)
    assert str(found) == text


def test_a_topology_cannot_be_made_or_changed_against_its_rules():
    with pytest.raises(
        SpecError, match="nodes must be a whole number from 1 to 2,147,483,647, got 0"
    ):
        Topology(0, 2)
    with pytest.raises(FrozenInstanceError):
        Topology(1, 2).nodes = 2


def test_devices_that_share_a_model_make_fewer_replicas():
    assert Parallelism().replicas(8) == 8
    assert Parallelism(shard=4).replicas(8) == 8
    assert Parallelism(tensor=2, pipeline=2).replicas(8) == 2
    assert a_run(topology="1x4", parallelism={"tensor": 2}).global_batch == 16


def test_degrees_must_divide_the_devices():
    with pytest.raises(SpecError, match="= 6 does not divide 8 devices") as problem:
        a_run(topology="1x8", parallelism={"shard": 2, "tensor": 3})
    assert "product divides" in problem.value.hint


def test_an_id_never_changes_silently():
    assert a_run().id == "2740ea3ac426"
    varied = a_run(topology="1x2", lr=0.1, options={"noise": 0.1}, env={"A": "1"})
    assert varied.id == "97286839a207"


def test_equal_runs_share_an_id_and_a_hash():
    first = a_run(env={"A": "1", "B": "2"}, options={"noise": 0.1, "drift": 0.2})
    second = RunSpec.from_dict(dict(reversed(first.to_dict().items())))
    turned = a_run(env={"B": "2", "A": "1"}, options={"drift": 0.2, "noise": 0.1})
    assert first.id == second.id == turned.id
    assert len({first, second, turned}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"lr": 1}, {"lr": 1.0}),
        ({"topology": 2}, {"topology": "1x2"}),
        ({"global_batch": 32, "topology": "1x4"}, {"batch": 8, "topology": "1x4"}),
        ({"start": "direct"}, {}),
        ({"framework": "torch", "start": "torchrun"}, {"framework": "torch"}),
    ],
)
def test_two_ways_to_say_the_same_have_one_id(one, other):
    assert a_run(**one).id == a_run(**other).id


@pytest.mark.parametrize(
    "field",
    [f for f in RunSpec.__dataclass_fields__ if f not in ("epochs", "steps", "samples")],
)
def test_a_field_at_its_default_does_not_change_the_id(field):
    default = a_run().to_dict()[field]
    assert a_run(**{field: default}).id == a_run().id


CHANGES = {
    "topology": "1x2", "batch": 9, "workload": "mlp", "framework": "torch", "strategy": "fsdp",
    "parallelism": {"shard": 1, "tensor": 2}, "data": "synthetic:99", "workers": 1, "threads": 2,
    "backend": "gloo", "remainder": "pad", "optimizer": "adam", "lr": 0.02, "accumulate": 2,
    "precision": "bf16", "compile": True, "epochs": 20, "steps": 21, "samples": 20, "save": True,
    "seed": 1, "repeat": 1, "launcher": "slurm", "start": "torchrun", "env": {"A": ""},
    "options": {"noise": 0.1}, "pipeline_schedule": "gpipe", "micro_batches": 3,
    "recompute": "full", "warmup_steps": 5, "warmup_epochs": 0.5, "schedule": "cosine",
    "clip": 1.0, "lr_rule": "sqrt", "base_batch": 2, "checkpoint_every": 5, "checkpoint_keep": 3,
    "resume": "runs/other/1", "noise_every": 5, "device": "cpu",
    "edge": 32, "augment": "flip", "broken": "refuse", "length": 128, "validate_every": 2,
    "optimizer_step": "fused", "sync_batchnorm": True, "ema": 0.99,
    "certify": True, "certify_order": "reversed",
}  # fmt: skip
BASES = {
    "parallelism": {"topology": "1x2"},
    "lr_rule": {"lr_rule": "linear", "base_batch": 4},
    "base_batch": {"lr_rule": "linear", "base_batch": 4},
    "certify_order": {"certify": True},
}
"""What a field needs beside it."""
OF_PROGRAMS = {
    "program": ["train.py", "--lr", "1"], "digest": "1234", "stop_after": 9,
    "samples_per_step": 8, "trace": 5, "loaders_alone": True,
}  # fmt: skip


@pytest.mark.parametrize("field", [each.name for each in fields(RunSpec)])
def test_every_field_that_changes_changes_the_id(field):
    if field in OF_PROGRAMS:
        base = {"program": ["train.py"], "topology": "1x1"}
        changed = base | {field: OF_PROGRAMS[field]}
        assert RunSpec.from_dict(changed).id != RunSpec.from_dict(base).id
        return
    base = BASES.get(field, {})
    assert a_run(**base | {field: CHANGES[field]}).id != a_run(**base).id


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lr_rule": "linear"}, "lr_rule = 'linear' with base_batch = None"),
        ({"base_batch": 8}, "lr_rule = 'none' with base_batch = 8"),
        ({"warmup_steps": 3, "warmup_epochs": 1}, "a warm-up has one length"),
        ({"clip": 0}, "clip must be a number above 0"),
    ],
)
def test_rules_of_learning_are_whole(given, said):
    with pytest.raises(SpecError, match=said):
        a_run(**given)


def test_an_order_of_samples_is_only_for_certificates():
    assert a_run(certify=True, certify_order="reversed").certify_order == "reversed"
    with pytest.raises(SpecError, match="certify_order = 'reversed' needs certify"):
        a_run(certify_order="reversed")


def test_a_trace_needs_room_before_the_program_leaves():
    asked = {"program": ["train.py"], "topology": "1x1", "trace": 5}
    assert RunSpec.from_dict(asked | {"stop_after": 8}).trace == 5
    with pytest.raises(SpecError, match="stop_after 7 leaves no room for trace 5"):
        RunSpec.from_dict(asked | {"stop_after": 7})


def test_certify_is_a_setting_of_the_study():
    with pytest.raises(SpecError, match="certify is a setting of the study"):
        StudySpec.from_dict({"name": "one", "run": {"program": ["train.py"], "certify": True}})


def test_only_the_first_word_of_a_program_must_not_be_empty():
    spec = RunSpec.from_dict({"program": ["train.py", "--resume", ""], "topology": "1x1"})
    assert spec.program == ("train.py", "--resume", "")
    with pytest.raises(SpecError, match="program must be a list of texts"):
        RunSpec.from_dict({"program": ["", "--resume"], "topology": "1x1"})


TEXT = some.text(some.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@settings(deadline=None)
@given(
    batch=some.integers(1, 4096),
    lr=some.floats(1e-9, 1e9),
    topology=some.builds("{}x{}".format, some.integers(1, 64), some.integers(1, 16)),
    seed=some.integers(0, 2**31 - 1),
    env=some.dictionaries(some.from_regex(r"[A-Z_]{1,9}", fullmatch=True), TEXT, max_size=3),
)
def test_a_run_survives_json(**changes):
    run = a_run(**changes)
    back = RunSpec.from_dict(through_json(run.to_dict()))
    assert back == run
    assert back.id == run.id


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({"steps": 7}, 7),
        ({"epochs": 3}, None),
        ({"samples": 96}, 12),
        ({"samples": 97}, 13),
        ({"samples": 100, "accumulate": 2}, 7),
        ({"samples": 96, "topology": "2x4"}, 12),
        ({"samples": 1}, 1),
    ],
)
def test_samples_per_device_round_up_to_whole_steps(changes, steps):
    assert a_run(**changes).total_steps == steps


@pytest.mark.parametrize(("framework", "start"), [("torch", "torchrun"), ("fake", "direct")])
def test_a_framework_decides_what_makes_its_processes(framework, start):
    assert a_run(framework=framework).started_by == start


WRONG = [
    ("batch", 0, "batch = 1"), ("batch", -3, "batch = 1"), ("batch", 2.5, "batch = 1"),
    ("batch", "8", "batch = 1"), ("batch", True, "batch = 1"), ("batch", 2**31, "batch = 1"),
    ("global_batch", 0, "global_batch = 1"), ("accumulate", 0, "accumulate = 1"),
    ("threads", 0, "threads = 1"), ("workers", -1, "workers = 1"), ("seed", 0.5, "seed = 1"),
    ("repeat", -1, "repeat = 1"), ("steps", 0, "steps = 1"), ("epochs", "three", "epochs = 1"),
    ("samples", nan, "samples = 1"), ("lr", 0, "lr = 0.01"), ("lr", -0.1, "lr = 0.01"),
    ("lr", nan, "lr = 0.01"), ("lr", inf, "lr = 0.01"), ("lr", "fast", "lr = 0.01"),
    ("lr", True, "lr = 0.01"), ("lr", 10**400, "lr = 0.01"), ("compile", "graph", "'graphs'"),
    ("save", 1, ""), ("framework", 3, ""), ("workload", ["mlp"], ""), ("data", 5, ""),
    ("precision", "bf61", "'bf16'"), ("optimizer", "adamm", "'adam'"),
    ("backend", "ncll", "'nccl'"), ("remainder", "dorp", "'drop'"),
    ("start", "torchrum", "'torchrun'"), ("env", "A=1", ""),
    ("options", 3, ""), ("topology", "two", "2x8"), ("topology", "", "2x8"),
    ("topology", "2x", "2x8"), ("topology", 1.5, "2x8"), ("topology", True, "2x8"),
    ("topology", None, "2x8"), ("topology", "0x2", ""), ("topology", "2x-1", ""),
    ("parallelism", 2, "tensor = 2"),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value", "hint"), WRONG, ids=lambda each: repr(each)[:20])
def test_a_wrong_value_is_named_with_a_way_out(field, value, hint):
    with pytest.raises(SpecError) as problem:
        a_run(**{field: value})
    assert field in str(problem.value)
    assert shown(value) in str(problem.value)
    assert hint in problem.value.hint


@pytest.mark.parametrize(
    ("changes", "said", "hint"),
    [
        ({"bacth": 8}, "no key 'bacth'", "did you mean 'batch'?"),
        ({"zzzzzz": 8}, "no key 'zzzzzz'", "known are: topology"),
        ({"parallelism": {"tenser": 2}}, "no key 'tenser'", "did you mean 'tensor'?"),
        ({"parallelism": {"tensor": 0}}, "tensor must be a whole number", "tensor = 1"),
        ({"edge": 65_536}, "edge must be a whole number from 1 to 65,535", "edge = 224"),
        ({"env": {"A": 1}}, "env A must be text, got 1", 'A = "1"'),
        ({"env": {"A": "a\0b"}}, "env A cannot hold a null character", ""),
        ({"data": " "}, "data must not be empty", "leave data out"),
        ({"workload": " "}, "workload must not be empty", 'for example workload = "mlp"'),
        ({"steps": 2, "epochs": 2}, "got epochs and steps", "epochs = 3"),
        ({"steps": None}, "got none", "epochs = 3"),
        ({"batch": 2, "global_batch": 2}, "one of batch and global_batch", "over all of them"),
    ],
)
def test_what_means_nothing_is_refused(changes, said, hint):
    with pytest.raises(SpecError) as problem:
        RunSpec.from_dict(run_values() | changes)
    assert said in str(problem.value)
    assert hint in problem.value.hint


NO_NAMES = [
    "", "A=B", "A;touch x;B", "A B", "A\nB", "A$(id)", "A`id`", "1A", "A-B", "A.B", "A[0]", "Ä",
    "A\0", "A\n",
]  # fmt: skip


@pytest.mark.parametrize("name", NO_NAMES)
def test_only_names_of_environment_variables_are_taken(name):
    with pytest.raises(SpecError, match="not the name of an environment variable"):
        a_run(env={name: "1"})
    with pytest.raises(SpecError, match="not the name of an environment variable"):
        a_study(vary={f"env.{name}": ["1", "2"]})


def test_an_option_that_no_file_can_hold_is_refused():
    with pytest.raises(SpecError, match="2020"):
        a_study(options={"since": date(2020, 1, 1)})


def test_strong_scaling_divides_the_global_batch():
    runs = a_study(global_batch=16, accumulate=2).runs()
    assert [run.batch for run in runs] == [8, 4, 2]
    assert {run.global_batch for run in runs} == {16}


@pytest.mark.parametrize(
    ("changes", "said", "hint"),
    [
        ({"global_batch": 10}, "10 does not divide over 4 replicas (1x4)", "global_batch = 8"),
        ({"global_batch": 3}, "3 does not divide over 2 replicas (1x2)", "global_batch = 2"),
        ({"global_batch": 4, "accumulate": 2}, "4 replicas x 2 micro-steps", "global_batch = 8"),
        ({"batch": 8, "scaling": "strong"}, "gives batch", 'scaling = "weak"'),
        ({"global_batch": 8, "scaling": "weak"}, "gives global_batch", 'scaling = "strong"'),
    ],
)
def test_a_batch_that_does_not_fit_the_scaling_is_refused(changes, said, hint):
    with pytest.raises(SpecError) as problem:
        a_study(**changes)
    assert said in str(problem.value)
    assert hint in problem.value.hint


def test_runs_come_smallest_first_and_always_the_same():
    study = a_study(topologies=["2x2", "1x1", "1x4", 2], vary={"lr": [0.2, 0.1]})
    found = [(str(run.topology), run.lr) for run in study.runs()]
    assert found == [(t, lr) for t in ("1x1", "1x2", "1x4", "2x2") for lr in (0.2, 0.1)]
    assert StudySpec.from_dict(through_json(study.to_dict())).runs() == study.runs()


def test_repeats_are_runs_of_their_own():
    runs = a_study(topologies=["1x1", "1x2"], repeats=3).runs()
    assert [(run.topology.world, run.repeat) for run in runs] == [
        (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)
    ]  # fmt: skip
    assert len({run.id for run in runs}) == 6
    assert runs[0].id == a_run().id


def test_an_option_can_be_an_axis():
    study = a_study(topologies=[1], options={"drift": 0.01}, vary={"options.noise": [0.0, 0.1]})
    assert [dict(run.options) for run in study.runs()] == [
        {"drift": 0.01, "noise": 0.0},
        {"drift": 0.01, "noise": 0.1},
    ]
    assert study.where(study.runs()[1]) == {"options.noise": 0.1}


def test_an_axis_of_options_that_are_no_table_is_refused():
    with pytest.raises(SpecError, match="options must be a table"):
        a_study(options=3, vary={"options.noise": [0.1]})


def test_only_what_is_varied_beside_topology_sets_curves_apart():
    study = a_study(vary={"strategy": ["ddp", "zero1"]})
    assert study.where(study.runs()[0]) == {"strategy": "ddp"}
    strong = a_study(global_batch=8, vary={"global_batch": [8]})
    assert strong.where(strong.runs()[-1]) == {"global_batch": 8}
    assert a_study().where(a_run()) == {}


@pytest.mark.parametrize("changes", [{"topologies": ["1x2", 2]}, {"vary": {"lr": [1, 1.0]}}])
def test_twins_are_refused(changes):
    with pytest.raises(SpecError, match=r"the same run twice: 1x[12], batch 8"):
        a_study(**changes)


@pytest.mark.parametrize("name", ['a "quoted" study', "it's", "ünï – 研究", "a.b", "a|b & <c>"])
def test_a_study_may_have_a_peoples_name(name):
    assert a_study(name=name).name == name


@pytest.mark.parametrize(
    "name",
    [
        "a/b",
        "a\\b",
        "..",
        ".hidden",
        "",
        "  ",
        "a\nb",
        "a\0b",
        "a\x1bb",
        "a\u202eb",
        "-rf",
        3,
        "x" * 256,
        "é" * 128,
    ],
)
def test_a_name_that_is_no_folder_is_refused(name):
    with pytest.raises(SpecError) as problem:
        a_study(name=name)
    assert shown(name) in str(problem.value)


@pytest.mark.parametrize(
    ("changes", "said", "hint"),
    [
        ({"scaling": "waek"}, "'waek'", "'weak'"),
        ({"repeats": 0}, "got 0", "repeats = 1"),
        ({"launcher": "slurm"}, "'slurm'", ""),
        ({"run": 5}, "got 5", ""),
        ({"vary": 5}, "got 5", ""),
        ({"vary": {"topology": "1x2"}}, "topology = '1x2'", 'topology = ["1x2"]'),
        ({"vary": {"lr": []}}, "lr = []", "lr = "),
        ({"vary": {"lr": 0.1}}, "lr = 0.1", "lr = [0.1]"),
        ({"vary": {"bacth": [1]}}, "'bacth'", "'batch'"),
        ({"vary": {"repeat": [0, 1]}}, "repeat cannot", "repeats = 3"),
        ({"vary": {"launcher": ["local"]}}, "launcher cannot", "[launcher]"),
        ({"run": {"bacth": 8}}, "'bacth'", "'batch'"),
        ({"repaets": 2}, "'repaets'", "'repeats'"),
    ],
)
def test_a_wrong_study_is_refused_with_a_way_out(changes, said, hint):
    with pytest.raises(SpecError) as problem:
        StudySpec.from_dict({"name": "a study", "run": run_values(), **changes})
    assert said in str(problem.value)
    assert hint in problem.value.hint


@pytest.mark.parametrize("key", ["name", "run"])
def test_a_study_needs_a_name_and_a_run(key):
    values = {"name": "a study", "run": run_values()}
    del values[key]
    with pytest.raises(SpecError, match=f"a study needs {key}"):
        StudySpec.from_dict(values)


def test_a_study_survives_json():
    study = a_study(global_batch=16, repeats=2, vary={"lr": [0.1, 0.2]}, launcher={"patience": 9})
    assert StudySpec.from_dict(through_json(study.to_dict())) == study
    assert study.scaling == "strong"


def test_options_may_be_varied_as_a_table():
    dotted = a_study(vary={"options.compute": [0.1, 0.2]})
    nested = a_study(vary={"options": {"compute": [0.1, 0.2]}})
    assert nested == dotted


def test_a_study_of_too_many_runs_is_refused_at_once():
    with pytest.raises(SpecError, match="a study of 6,000,000,000 runs"):
        a_study(repeats=2_000_000_000)


@pytest.mark.parametrize("text", ["１x２", "1_0x1", "+1x1", " 1x1", "1x1x1", "x1", "9" * 5000])
def test_a_topology_is_written_in_plain_digits(text):
    with pytest.raises(SpecError, match="not a topology"):
        Topology.parse(text)


def test_a_strategy_by_its_whole_name_says_its_framework():
    said = {"topology": "1x2", "batch": 8, "steps": 3, "workload": "mnist-cnn"}
    whole = RunSpec.from_dict({**said, "strategy": "tensorflow.multiworker"})
    apart = RunSpec.from_dict({**said, "framework": "tensorflow", "strategy": "multiworker"})
    assert whole == apart and whole.id == apart.id and whole.started_by == "plain"
    assert "(mnist-cnn on 1x2, tensorflow, multiworker, repeat 1)" in whole.title


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        ("jax.sharded", "strategy 'jax.sharded' is not one of framework 'torch'"),
        ("torch.", "strategy must not be empty"),
        (".ddp", "strategy '.ddp' is not one of framework 'torch'"),
    ],
)
def test_a_strategy_of_another_framework_is_refused(strategy, words):
    with pytest.raises(SpecError, match=words):
        a_run(framework="torch", workload="mlp", strategy=strategy)


def test_a_tpu_is_told_whose_it_is():
    with pytest.raises(SpecError, match="TPUs need JAX") as refused:
        a_run(framework="torch", workload="mlp", device="tpu")
    assert 'framework = "jax"' in refused.value.hint
