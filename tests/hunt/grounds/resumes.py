"""Kill trainings at random moments, resume them, and compare with one that nobody killed.

On the same ranks everything is equal to the last bit: losses, validations, weights, and every
tensor of the last checkpoint (optimizer, average, random numbers). On other ranks weights are
equal within TOLERANCE.
"""

import atexit
import io
import json
import os
import random
import shutil
import signal
import tempfile
import warnings
from contextlib import redirect_stdout, suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict_loader import load

import start_ranks
from paths import RANK_PROGRAMS
from scalewise.frameworks.torch.checkpoint.checkpoint_files import empty_tensors, tensor_metadata
from scalewise.frameworks.torch.checkpoint.safe_load import CheckpointReader
from scalewise.record import checkpoints
from scalewise.record.write import write_json
from scalewise.spec import RunSpec

PROGRAM = RANK_PROGRAMS / "killed_rank.py"
NEEDS = ("torch",)
LIMIT = 900.0

TOLERANCE = 1e-4
"""Largest difference of a weight after a resume on other ranks: sums have another order there."""

Run = dict[str, Any]
IMAGES = ["synthetic:96x8x8", "synthetic:100x8x8", "synthetic:77x8x8"]
MODELS: dict[str, Run] = {
    "mlp": {"workload": "mlp", "options": {"hidden": [48, 32, 32, 24, 24, 16, 16, 16]}},
    "cnn": {"workload": "mnist-cnn", "options": {"dropout": 0.2}},
    "norm": {"workload": "small_model:normalized", "options": {"dropout": 0.1}},
    "gpt": {
        "workload": "gpt",
        "data": "tokens:70x16",
        "options": {"width": 16, "depth": 4, "heads": 4},
    },
    "vit": {"workload": "vit", "options": {"patch": 4, "width": 16, "depth": 4, "heads": 4}},
}
BLOCKS = ("mlp", "gpt", "vit")
"""Models whose layers tensor and pipeline parallelism may split."""
OPTIMIZERS = {"sgd": 0.05, "adam": 0.002, "adamw": 0.002}
WAYS: dict[str, tuple[str, ...]] = {
    "1x1": ("ddp",),
    "1x2": ("ddp", "zero1", "fsdp", "tensor", "pipeline"),
    "1x3": ("ddp", "zero1", "fsdp"),
    "1x4": ("ddp", "ddp", "zero1", "fsdp", "tensor", "pipeline"),
    "2x2": ("hsdp",),
}
MOMENTS = {
    "step": 12, "update": 12, "edge": 2, "store": 6, "save": 6, "checksum": 8, "finish": 5,
    "remove": 5, "weights": 1,
}  # fmt: skip
"""Places to kill at, and how many calls of each there are about."""
DAMAGES = (
    "truncated",
    "changed",
    "removed",
    "no checksums",
    "no progress",
    "empty progress",
    "another step",
)


def draw(random: random.Random) -> Any:
    """Draw a run, where it is killed, what is damaged then, and where it goes on."""
    kind = random.choice(["same", "same", "same", "twice", "damaged", "other"])
    run = _other_run(random) if kind == "other" else _run(random)
    case: dict[str, Any] = {"kind": kind, "run": run, "kills": [_moment(random, run)]}
    if kind == "twice":
        again = f"restore:1@{random.randrange(_world(run))}"
        case["kills"].append(random.choice([again, _moment(random, run)]))
    if kind == "damaged":
        case["damage"] = random.choice(DAMAGES)
        case["run"]["checkpoint_keep"] = random.choice([1, 2, 3])
    if kind == "other":
        others = [each for each in ("1x1", "1x2", "1x4") if each != run["topology"]]
        case["then"] = random.choice(others)
        case["strategy"] = random.choice(WAYS[case["then"]])
        if case["strategy"] == "pipeline":
            run["remainder"] = "drop"
    return case


def _run(random: random.Random) -> Run:
    topology = random.choice(["1x1", "1x1", "1x2", "1x2", "1x3", "1x4", "2x2"])
    strategy = random.choice(WAYS[topology])
    splits = strategy in ("tensor", "pipeline")
    model = random.choice(BLOCKS if splits else tuple(MODELS))
    optimizer = random.choice(list(OPTIMIZERS))
    run = {
        "data": random.choice(IMAGES),
        **MODELS[model],
        "topology": topology,
        "strategy": strategy,
        "optimizer": optimizer,
        "lr": OPTIMIZERS[optimizer],
        "schedule": random.choice(["constant", "cosine", "linear"]),
        "warmup_steps": random.choice([0, 3]),
        "remainder": random.choice(["drop", "pad"] + ["short"] * (strategy != "pipeline")),
        "accumulate": random.choice([1, 1, 2, 3]),
        "checkpoint_every": random.choice([1, 2, 3, 5]),
        "workers": random.choice([0, 0, 0, 1]),
        "save": True,
        **random.choice([{}, {}, {"ema": 0.9}]),
        **random.choice([{}, {}, {"clip": 0.5}]),
        **random.choice([{}, {}, {"precision": "bf16"}, {"precision": "fp16"}]),
        **random.choice([
            {"epochs": 2}, {"epochs": 3, "validate_every": 2}, {"steps": 11}, {"steps": 17},
        ]),
    }  # fmt: skip
    if strategy in ("ddp", "zero1") and topology != "1x1":
        buckets = {"bucket_mb": 0.004, "first_bucket_mb": 0.001, "bucket_view": False}
        more: list[Run] = [{}, {}, buckets]
        more += [{"compression": name} for name in ("fp16", "bf16", "powersgd")]
        run["options"] = {**run["options"], **random.choice(more)}
        run |= random.choice([{}, {}, {"noise_every": 3}])
    if strategy == "pipeline":
        run["pipeline_schedule"] = random.choice(["gpipe", "1f1b", "interleaved"])
        if run["pipeline_schedule"] == "interleaved" and topology == "1x4":
            run["pipeline_schedule"] = "1f1b"  # There are no eight blocks.
        run["parallelism"] = {"pipeline": 2}
        run["micro_batches"] = 4
    if strategy == "tensor":
        run["parallelism"] = {"tensor": 2}
    replicas = _world(run) // (2 if splits else 1)
    batch = 4 if strategy == "pipeline" else random.choice([2, 3, 4])
    if model == "norm" and run["remainder"] == "short":
        run["remainder"] = "drop"  # A batch of one sample cannot be normalized.
    return {**run, "batch": batch if replicas > 1 else 2 * batch}


def _other_run(random: random.Random) -> Run:
    """Draw a run that other ranks continue: no chance, and the same global batch."""
    run = _run(random)
    for name in ("parallelism", "pipeline_schedule", "micro_batches", "noise_every", "batch"):
        run.pop(name, None)
    topology = random.choice(["1x1", "1x2", "1x4"])
    model = random.choice(BLOCKS)
    strategy = random.choice([way for way in WAYS[topology] if way not in ("tensor", "pipeline")])
    optimizer = random.choice(["sgd", "adamw"]) if model == "mlp" else "sgd"
    return {
        **run,
        "data": random.choice(IMAGES),
        **MODELS[model],
        "topology": topology,
        "strategy": strategy,
        "optimizer": optimizer,
        "lr": OPTIMIZERS[optimizer],
        "precision": "fp32",
        "accumulate": random.choice([1, 2]),
        "global_batch": 16,
    }


def _moment(random: random.Random, run: Run) -> str:
    when = random.choice([*MOMENTS, "step", "save", "seconds"])
    count = random.randint(1, MOMENTS[when]) if when in MOMENTS else round(random.random() * 1.5, 2)
    rank = 0 if when in ("finish", "remove") else random.randrange(_world(run))
    return f"{when}:{count}@{rank}"


def _world(run: Run) -> int:
    nodes, devices = run["topology"].split("x")
    return int(nodes) * int(devices)


def try_case(case: Any, folder: Path) -> str | None:
    """Kill, damage, resume; return in what the end differs from that of the whole training."""
    run, home = case["run"], folder / "killed"
    expected = _whole(json.dumps(run, sort_keys=True))
    for attempt, moment in enumerate(case["kills"], 1):
        code, said = _train(run, home, attempt, moment)
        if code not in (0, -signal.SIGKILL):
            return f"attempt {attempt} ended with {code}: {said[-1500:]}"
    found = checkpoints.complete(home / checkpoints.FOLDER)
    damaged = found.pop() if found and "damage" in case else None
    if damaged:
        _damage(damaged, case["damage"])
    step = checkpoints.step_of(found[-1]) if found else 0
    if "then" not in case:
        attempt = len(case["kills"]) + 1
        code, said = _train(run, home, attempt)
        if code:
            return f"the resumed attempt ended with {code}: {said[-1500:]}"
        return _resumed_wrongly(home, attempt, step, damaged) or _differs(home, expected, attempt)
    if not found:
        return None  # It was killed before its first checkpoint: nothing to resume.
    resumed = {**run, "topology": case["then"], "strategy": case["strategy"], "resume": str(home)}
    code, said = _train(resumed, folder / "resumed", 1)
    if code:
        return f"the resumed run ended with {code}: {said[-1500:]}"
    wrong = _resumed_wrongly(folder / "resumed", 1, step, None)
    return wrong or _apart(folder / "resumed", expected)


@cache
def _whole(run: str) -> Path:
    """Return the folder of a training that nobody killed."""
    home = Path(tempfile.mkdtemp(prefix="hunt-whole-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    code, said = _train(json.loads(run), home, 1)
    if code:
        raise RuntimeError(f"nobody killed it, and it ended with {code}: {said[-1500:]}")
    return home


def _train(run: Run, home: Path, attempt: int, moment: str = "never") -> tuple[int, str]:
    """Start the ranks of a run; return the first failing exit code, and what that rank said."""
    home.mkdir(parents=True, exist_ok=True)
    spec = RunSpec.from_dict(run)
    write_json(home / "spec.json", spec.to_dict())
    with redirect_stdout(io.StringIO()):
        return start_ranks.start(
            spec.topology.world, PROGRAM, home, moment, SCALEWISE_ATTEMPT=str(attempt)
        )


def _damage(checkpoint: Path, how: str) -> None:
    """Damage a checkpoint as disks, people and other programs do."""
    part = max(checkpoint.glob("*.distcp"), key=lambda path: path.stat().st_size)
    if how == "truncated":
        os.truncate(part, part.stat().st_size // 2)
    elif how == "changed":
        content = bytearray(part.read_bytes())
        content[len(content) // 2] ^= 1
        part.write_bytes(content)
    elif how == "removed":
        part.unlink()
    elif how == "no checksums":
        (checkpoint / checkpoints.CHECKSUMS).unlink()
    elif how == "no progress":
        (checkpoint / checkpoints.STATE).unlink()
    elif how == "empty progress":
        (checkpoint / checkpoints.STATE).write_text("")
    elif how == "another step":
        state = json.loads((checkpoint / checkpoints.STATE).read_text())
        (checkpoint / checkpoints.STATE).write_text(
            json.dumps({**state, "step": state["step"] + 1})
        )


def _lines(home: Path, attempt: int) -> list[dict[str, Any]]:
    """Return what rank 0 wrote in an attempt."""
    lines = []
    for line in (home / "rank-00000.jsonl").read_text().splitlines():
        with suppress(ValueError):  # A kill cut this line off.
            lines.append(json.loads(line))
    return [line for line in lines if line.get("attempt") == attempt]


def _resumed_wrongly(home: Path, attempt: int, step: int, damaged: Path | None) -> str | None:
    """Return what is wrong with where an attempt began, and with what it says about damage."""
    lines = _lines(home, attempt)
    resumed = [line["resumed"] for line in lines if "resumed" in line] or [0]
    if resumed != [step]:
        return f"resumed from step {resumed}, not {step}"
    told = [sentence for line in lines for sentence in line.get("damaged", [])]
    if damaged and not any(damaged.name in sentence for sentence in told):
        return f"it does not say that {damaged.name} is damaged, but {told}"
    # A kill may have come between the last two files of a checkpoint.
    if not damaged and any("checksums.json is missing" not in sentence for sentence in told):
        return f"nobody damaged a checkpoint, and it says {told}"
    return None


def _differs(home: Path, expected: Path, attempt: int) -> str | None:
    """Return the first bit of a resumed training that is not as in the whole one."""
    wanted = {line["epoch"]: line for line in _lines(expected, 1) if "every" in line}
    for line in _lines(home, attempt):
        if "every" in line:
            like = wanted[line["epoch"]]
            for key in ("losses", "validation"):
                if line.get(key) != like.get(key):
                    return f"{key} {line.get(key)}, not {like.get(key)}"
    ours, theirs = _tensors(home), _tensors(expected)
    if ours.keys() != theirs.keys():
        return f"the last checkpoint has other tensors: {sorted(ours.keys() ^ theirs.keys())}"
    wrong = [name for name in ours if not _equal(ours[name], theirs[name])]
    return f"{len(wrong)} of {len(ours)} tensors differ: {wrong[:4]}" if wrong else None


def _apart(home: Path, expected: Path) -> str | None:
    """Return by how much the weights of a training on other ranks differ, if by too much."""
    ours, theirs = (torch.load(each / "weights.pt") for each in (home, expected))
    apart = max(float((ours[name] - theirs[name]).abs().max()) for name in theirs)
    return None if apart <= TOLERANCE else f"weights differ by {apart:g}"


def _tensors(home: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a run's last checkpoint, and its saved weights."""
    path = checkpoints.complete(home / checkpoints.FOLDER)[-1]
    saved = tensor_metadata(path)
    tensors = empty_tensors(list(saved), saved)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It says that nothing is distributed here.
        load(tensors, storage_reader=CheckpointReader(path), no_dist=True)
    weights = torch.load(home / "weights.pt")
    return {f"{path.name} {name}": tensor for name, tensor in {**tensors, **weights}.items()}


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one.nan_to_num(), other.nan_to_num())
