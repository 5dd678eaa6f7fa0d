"""Every way to split a model trains the same model as one device."""

import json
import math

import pytest
import torch
import torch.distributed as dist
from torch import nn

from builders import a_run
from paths import RANK_PROGRAMS
from scalewise import plugins
from scalewise.errors import SpecError
from scalewise.frameworks.part_options import options_for
from scalewise.frameworks.torch import Torch
from scalewise.frameworks.torch.parallel import ddp, zero1
from scalewise.frameworks.torch.parallel.batchnorm import convert_sync_batchnorm
from scalewise.frameworks.torch.task import refuse_optimizer_step
from start_ranks import start

SCRIPT = RANK_PROGRAMS / "split_equivalence.py"
LOSS, WEIGHTS = 2e-6, 1e-6
"""How far a loss and a weight may be from those of one device: rounding in another order."""


def cells(world, folder, *options):
    """Train the cells of a world in one launch; return how far each is from one device."""
    answer = folder / "answer.json"
    code, said = start(world, SCRIPT, answer, *options)
    assert code == 0, said[-4000:]
    return json.loads(answer.read_text())


@pytest.mark.training
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("world", "options"),
    [
        pytest.param(1, (), marks=pytest.mark.soak),
        pytest.param(2, ("--some",), marks=pytest.mark.soak),
        (4, ("--some",)),
        pytest.param(2, (), marks=pytest.mark.soak),
        pytest.param(4, (), marks=pytest.mark.soak),
        pytest.param(8, (), marks=pytest.mark.soak),
    ],
)
def test_losses_and_weights_are_those_of_one_device(world, options, tmp_path):
    rows = cells(world, tmp_path, *options)
    apart = [row for row in rows if row["loss"] > LOSS or row["weights"] > WEIGHTS]
    assert rows
    assert not apart
    check_waits(rows, world)
    for row in rows:
        check_traffic(row, world)
    if world == 4:
        check_memory({row["cell"]: row for row in rows if row["model"] == "mlp"})


def check_memory(rows):
    """What a device holds of the model falls as theory says (arXiv:1910.02054)."""
    whole = rows["ddp, adamw"]["held"]
    size = rows["ddp, adamw"]["parameters"]
    assert whole["parameters"] == whole["gradients"] == size
    shapes = rows["ddp, adamw"]["shapes"]
    assert whole["optimizer"] == remembered(shapes)
    zero, fsdp = rows["zero1, adamw"]["held"], rows["fsdp, adamw"]["held"]
    assert zero["parameters"] == zero["gradients"] == size
    assert zero["optimizer"] == remembered(dealt(shapes, 4)[0])
    assert sum(fsdp.values()) <= 0.30 * sum(whole.values())


def remembered(shapes):
    """Adam's two means of every number, and a count of steps for every parameter."""
    return sum(8 * math.prod(shape) + 4 for shape in shapes)


def dealt(shapes, ranks):
    """Deal whole parameters out: the largest first, each to the rank that has least."""
    hands = [[] for _ in range(ranks)]
    for shape in sorted(shapes, key=math.prod, reverse=True):
        min(hands, key=lambda hand: sum(map(math.prod, hand))).append(shape)
    return hands


def check_waits(rows, world):
    """Waiting for others is a phase of its own, whatever the strategy; alone nobody waits."""
    telling = {row["cell"] for row in rows if "sync" in row["phases"]}
    assert telling == ({row["cell"] for row in rows} if world > 1 else set())


LENGTH, WIDTH, DEPTH, BATCH = 16, 32, 4, 16
"""Of the little decoder in the cells."""


def check_traffic(row, world):
    """What a rank exchanges in a step is what theory says."""
    found = [each["exchanged"] for each in row["traffic"]]  # Known on every rank.
    if row["cell"] not in EXPECTED or (row["model"] != "gpt" and row["cell"] not in OF_ALL):
        return
    for rank, kinds in enumerate(found):
        told = {kind: each["bytes"] for kind, each in kinds.items()}
        assert told == EXPECTED[row["cell"]](row, world, rank), (row["cell"], row["model"], rank)


def size(row):
    """The bytes of all parameters."""
    return row["parameters"]


def padded(row, shards):
    """The same where each is cut into equal parts along its first axis, the last filled up."""
    whole = 0
    for first, *rest in row["shapes"]:
        whole += 4 * -(-first // shards) * shards * math.prod(rest)
    return whole


def gathered(row, shards, *, times):
    """Every block is gathered before its forward, and again before its backward if forgotten."""
    whole = padded(row, shards)
    return {"all-gather": times * whole, "reduce-scatter": whole}


def activations(batch=BATCH):
    """What a block hands on."""
    return 4 * batch * LENGTH * WIDTH


def tensor(batch=BATCH):
    """Twice gathered and scattered in a block, forward and backward, and at the two ends.

    Each rank sees a part of the sequence, so the gradients of norms are summed.
    """
    one = activations(batch)
    norms = DEPTH * 2 * 2 * 4 * WIDTH
    ends = {"all-gather": (4 * DEPTH + 2) * one, "reduce-scatter": 4 * DEPTH * one}
    return {**ends, "all-reduce": norms}


def pipeline(stages, rank, batch=BATCH, rounds=1):
    """Activations to the next stage, gradients to the one before."""
    mine = range(rank, stages * rounds, stages)
    sends = sum((each < stages * rounds - 1) + (each > 0) for each in mine)
    return {"point-to-point": sends * activations(batch)}


def together(*parts):
    """Add up what several ways of splitting exchange."""
    return {kind: sum(each.get(kind, 0) for each in parts) for part in parts for kind in part}


EXPECTED = {
    "ddp": lambda row, world, rank: {"all-reduce": size(row)} if world > 1 else {},
    "ddp, accumulate 4": lambda row, world, rank: {"all-reduce": size(row)},
    "ddp, recompute": lambda row, world, rank: {"all-reduce": size(row)},
    "zero1": lambda row, world, rank: {"all-reduce": size(row), "broadcast": size(row)},
    "fsdp": lambda row, world, rank: gathered(row, world, times=2) if world > 1 else {},
    "fsdp, selective recompute": lambda row, world, rank: gathered(row, world, times=2),
    "fsdp, no reshard": lambda row, world, rank: gathered(row, world, times=1),
    "fsdp, accumulate 4": lambda row, world, rank: gathered(row, world, times=8),
    "hsdp": lambda row, world, rank: {  # On two nodes.
        **gathered(row, world // 2, times=2),
        "all-reduce": padded(row, world // 2) // (world // 2),
    },
    "tensor": lambda row, world, rank: tensor(),
    "pipeline": lambda row, world, rank: pipeline(world, rank),
    "pipeline 1f1b": lambda row, world, rank: pipeline(world, rank),
    "pipeline gpipe": lambda row, world, rank: pipeline(world, rank),
    "pipeline interleaved": lambda row, world, rank: pipeline(world, rank, rounds=2),
    "ddp x tensor": lambda row, world, rank: together(
        tensor(BATCH // 2), {"all-reduce": row["held"]["parameters"]}
    ),
    "fsdp x tensor": lambda row, world, rank: together(
        tensor(BATCH // 2),
        {"all-gather": 4 * row["held"]["parameters"]},
        {"reduce-scatter": 2 * row["held"]["parameters"]},
    ),
}
OF_ALL = {each for each in EXPECTED if each.startswith(("ddp", "zero1", "fsdp", "hsdp"))}
OF_ALL -= {"ddp x tensor", "fsdp x tensor"}


GPT = {"workload": "gpt", "data": "tokens:100x16", "options": {"heads": 4, "depth": 4}}


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ({**GPT, "parallelism": {"tensor": 3}}, "3 = 3 does not divide 8 devices|tensor 3"),
        ({**GPT, "strategy": "tensor"}, "gpt has 4 heads, which tensor 8 does not divide"),
        (
            {"workload": "gpt-nano", "parallelism": {"pipeline": 2}},
            "gpt-nano is tied: its last layer uses the weights of its first",
        ),
        (
            {"workload": "resnet50", "parallelism": {"pipeline": 2}, "micro_batches": 8},
            "resnet50 cannot normalize over a batch of 1",
        ),
        ({"workload": "vit-b16"}, "patches of 16 do not fit an image of 8x8"),
        (
            {"workload": "resnet50", "parallelism": {"tensor": 2}},
            "resnet50 does not say how its layers may be split",
        ),
        ({**GPT, "strategy": "pipeline"}, "gpt has 4 blocks, too few for 8 stages"),
        (
            {**GPT, "parallelism": {"pipeline": 4}, "pipeline_schedule": "interleaved"},
            r"gpt has 4 blocks, too few for 8 stages \(two on each device\)",
        ),
        (
            {**GPT, "parallelism": {"pipeline": 4}, "micro_batches": 3},
            "batch 8 does not divide into 3 micro_batches",
        ),
        (
            {**GPT, "parallelism": {"pipeline": 4}, "micro_batches": 2},
            "2 micro_batches do not keep 4 stages busy",
        ),
        (
            {**GPT, "parallelism": {"pipeline": 2}, "remainder": "short"},
            "a pipeline cannot take a batch that is shorter",
        ),
        ({**GPT, "strategy": "zero1", "parallelism": {"tensor": 2}}, "zero1 does not go together"),
        ({**GPT, "compile": "graphs", "accumulate": 4}, "this run has accumulate = 4"),
        ({**GPT, "compile": "graphs", "strategy": "fsdp"}, 'this run has strategy = "fsdp"'),
        ({**GPT, "compile": "graphs", "parallelism": {"tensor": 2}}, "this run has tensor = 2"),
        ({"workload": "mlp", "options": {"hidden": [8, 0]}}, "each of hidden must be a whole"),
        ({"workload": "mnist-cnn", "data": "synthetic:16x4x4"}, "nothing is left of images below"),
        (
            {"workload": "mlp", "data": "synthetic:16x8x8", "augment": "crop"},
            "is for folders of images, and the data is synthetic",
        ),
        ({**GPT, "parallelism": {"shard": 2}}, "ddp does not shard, but"),
        (
            {**GPT, "strategy": "hsdp", "topology": "2x4", "parallelism": {"shard": 8}},
            "hsdp shards inside a node, and 8 x tensor 1 does not divide its 4 devices",
        ),
        (
            {"workload": "mnist-cnn", "parallelism": {"tensor": 2}},
            "mnist-cnn does not say how its layers may be split",
        ),
        (
            {"workload": "mnist-cnn", "parallelism": {"pipeline": 2}},
            "mnist-cnn has 0 blocks, too few for 2 stages",
        ),
        (
            {"workload": "mnist-cnn", "recompute": "full"},
            "mnist-cnn has no blocks, and recompute = 'full' needs them",
        ),
        (
            {
                "workload": "resnet50",
                "data": "synthetic:16x32x32x3",
                "compile": "blocks",
                "recompute": "selective",
            },
            "resnet50 has batch normalization, whose statistics a compiled step",
        ),
        (
            {"workload": "mlp", "parallelism": {"tensor": 8}, "options": {"hidden": [12, 8]}},
            "a layer of mlp has 12 units, which tensor 8 does not divide",
        ),
        ({**GPT, "options": {"bucket_mb": 0}}, "bucket_mb must be a number above 0, got 0"),
        ({**GPT, "options": {"first_bucket_mb": "1"}}, "first_bucket_mb must be a number above 0"),
        ({**GPT, "options": {"bucket_view": 1}}, "bucket_view must be true or false, got 1"),
        (
            {**GPT, "options": {"static_graph": True}, "accumulate": 2},
            "static_graph does not go together with accumulate",
        ),
        (
            {**GPT, "sync_batchnorm": True},
            "gpt has no batch normalization, and sync_batchnorm = true",
        ),
        ({**GPT, "options": {"compression": "fp8"}}, "compression must be one of none, fp16"),
        ({**GPT, "options": {"powersgd_rank": 0}}, "powersgd_rank must be a whole number from 1"),
        (
            {**GPT, "parallelism": {"tensor": 2}, "options": {"compression": "fp16"}},
            "compression is a setting of DDP",
        ),
        (
            {**GPT, "parallelism": {"tensor": 2}, "options": {"bucket_mb": 10}},
            "bucket_mb is a setting of DDP",
        ),
        ({**GPT, "strategy": "fsdp", "options": {"bucket_mb": 10}}, "has no option 'bucket_mb'"),
    ],
)
def test_what_cannot_be_split_is_refused_before_any_rank_starts(run, said):
    with pytest.raises(SpecError, match=said):
        Torch().check(a_run(**{"topology": "1x8", "framework": "torch", **run}))


@pytest.mark.parametrize("strategy", [ddp.parallelize, zero1.parallelize])
def test_settings_of_ddp_reach_it_as_one_value(strategy):
    spec = a_run(framework="torch", workload="mlp", options={"bucket_mb": 10, "hidden": [4]})
    assert options_for(strategy, spec) == {"buckets": ddp.Buckets(bucket_mb=10)}


def test_a_version_of_pytorch_without_a_first_bucket_is_told(monkeypatch):
    class Older:
        pass

    monkeypatch.setattr(ddp, "DistributedDataParallel", Older)
    with pytest.raises(SpecError, match="this version of PyTorch has no setting for the first"):
        ddp.Buckets(first_bucket_mb=1)


def a_normalizing(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, classes))


@pytest.fixture
def normalizing(monkeypatch):
    """Have a workload with batch normalization: none of ours has it."""
    load = plugins.load
    monkeypatch.setattr(
        plugins, "load",
        lambda kind, name, **where: a_normalizing if name == "bn" else load(kind, name, **where),
    )  # fmt: skip


def a_synchronized(**changes):
    given = {"framework": "torch", "workload": "bn", "topology": "1x2", "sync_batchnorm": True}
    return a_run(**{**given, **changes})


@pytest.mark.usefixtures("normalizing")
def test_batch_normalization_takes_all_replicas_together_where_there_are_several():
    Torch().check(a_synchronized())
    accelerator, kinds = torch.device("cuda"), []
    for run in ({}, {"topology": "1x1"}, {"sync_batchnorm": False}):
        model = convert_sync_batchnorm(
            a_normalizing((1, 8, 8), 10), a_synchronized(**run), accelerator
        )
        kinds.append(type(model[2]))
    assert kinds == [nn.SyncBatchNorm, nn.BatchNorm1d, nn.BatchNorm1d]
    with pytest.raises(SpecError, match="bn is split"):
        Torch().check(a_synchronized(parallelism={"pipeline": 2}))


@pytest.mark.usefixtures("normalizing")
def test_synchronized_batch_normalization_needs_accelerators():
    with pytest.raises(SpecError, match="sync_batchnorm needs accelerators"):
        convert_sync_batchnorm(a_normalizing((1, 8, 8), 10), a_synchronized(), torch.device("cpu"))


def test_a_step_that_the_device_does_not_have_is_refused():
    for name in ("sgd", "adam", "adamw"):
        refuse_optimizer_step(a_run(optimizer=name, optimizer_step="fused"), torch.device("cpu"))
        with pytest.raises(SpecError, match=f"{name} cannot do a fused step here"):
            refuse_optimizer_step(
                a_run(optimizer=name, optimizer_step="fused"), torch.device("meta")
            )


@pytest.fixture
def one_rank():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_parameters_that_get_no_gradient_are_told_by_their_names(one_rank):
    class Idle(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.spare = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x):
            return self.used(x)

    def trained(buckets):
        model = buckets.wrap(Idle(), one_rank)
        for _ in range(3):
            model(torch.ones(1, 2)).sum().backward()

    with pytest.raises(SpecError, match=r"on spare\.weight, spare\.bias, and") as told:
        trained(ddp.Buckets())
    assert "static_graph = true" in told.value.hint
    trained(ddp.Buckets(static_graph=True))
