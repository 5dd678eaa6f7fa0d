"""The guards: each fires on its fault, and is silent where all is well."""

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import a_run
from guard_cases import CUDA, FAULTY, SAID, SAME, STEPS, healthy, weights
from paths import DOCS, TESTS
from scalewise import results
from scalewise.analysis.explain import Finding, explain
from scalewise.analysis.explain.guards import GUARDS, run_guards
from scalewise.analysis.explain.guards.guard import watched_runs
from scalewise.record import batch_sharing, replicas
from scalewise.record.read import RankRecord, RunRecord, Span, Steps
from scalewise.record.schema import ProgramFacts
from scalewise.report import explanation_sections
from scalewise.spec import RunSpec, Topology
from watch_script import run as run_script
from watched_scripts import FAULTS, Script

SOURCES = Path(results.__file__).parent
STORED = TESTS / "folders/script"


def a_record(
    devices: int = 2,
    *,
    facts: dict[str, Any] | None = None,
    by_rank: tuple[dict[str, Any], ...] = (),
    batch: int = 16,
    steps: tuple[int, ...] = (),
    waited: float = 0.0,
    host: str = "here",
) -> RunRecord:
    """Return a run that is well, but for these facts."""
    ranks = []
    for rank in range(devices):
        count = steps[rank] if steps else STEPS
        epoch = {"epoch_samples": 10_000 // devices}
        own = healthy(rank) | epoch | (facts or {}) | (by_rank[rank] if by_rank else {})
        lines = (
            {"guest": True, "threads": 1, "facts": own},
            {"outline": {"steps": count, "seen": count * batch}},
        )
        columns = Steps(
            index=np.arange(count),
            seconds=np.full(count, 0.01),
            samples=np.full(count, batch),
            phases={"forward": np.full(count, 0.01 - waited), "input": np.full(count, waited)},
            at=0.01 * np.arange(count),
        )
        train = Span("train", 0.0, 0.01 * count, {"samples": count * batch})
        ranks.append(RankRecord(rank, host, (train,), columns, lines))
    spec = a_run(topology=f"1x{devices}")
    return RunRecord(Path("made-up"), spec, 0.0, 0.01 * STEPS, {}, tuple(ranks))


def names(*records: RunRecord) -> list[str]:
    return [each.name for each in run_guards(records) or ()]


def the(name: str, *records: RunRecord) -> Finding:
    (found,) = [each for each in run_guards(records) or () if each.name == name]
    return found


WELL = (
    {},
    {"devices": 1},
    {"devices": 1, "facts": SAME},
    {"facts": {"samples": [None, None, None]}},
    {"facts": {"samples": []}},
    {"facts": SAME | {"split": True}},
    {"facts": {"samples": ["a", "a", "a"], "loads": False}},
    {"facts": {"passes": {"count": 1, "epochs": 1}}},
    {"facts": {"passes": None}},
    {"by_rank": ({}, {"weights": weights(1.000001, 2.0)})},
    {"by_rank": ({}, {"weights": weights(9.0, 2.0, shapes="another stage")})},
    {"by_rank": ({}, {"weights": weights(9.0, 2.0, step=16)})},
    {"by_rank": ({}, {"weights": weights(9.0, 2.0), "split": True})},
    {"by_rank": ({}, {"weights": weights(float("nan"), 2.0)})},
    {"by_rank": ({}, {"weights": None})},
    {"facts": {"rate": None, "emptied": 3}},
    {"facts": {"cores": 7}},
    {"devices": 4, "facts": {"cores": 15}},
    {"facts": CUDA | {"dtype": "bfloat16"}, "by_rank": ({}, {"accelerator": "GPU-2"})},
    {"devices": 1, "facts": CUDA | {"cores": 64, "autocast": True}},
    {"devices": 1, "facts": CUDA | {"matmul": "high", "tf32": True}},
    {"devices": 1, "facts": CUDA | {"capability": [7, 5]}},
    {"facts": {"waits": {"from": 5, "to": 25, "count": 19, "where": "train.py:3"}}},
    {"facts": {"waits": {"from": 5, "to": 5, "count": 0, "where": None}}},
    {"facts": {"workers": 0}, "waited": 0.0004},
    {"facts": {"workers": 2}, "waited": 0.005},
    {"facts": {"handed": {"bytes": 100, "pageable": False}}},
    {"by_rank": ({"searched": {"unused": 0}}, {"searched": {"unused": 1}})},
    {"facts": {"searched": None}},
)


@pytest.mark.parametrize("made", WELL, ids=str)
def test_guards_are_silent_where_all_is_well(made):
    assert run_guards([a_record(**made)]) == ()


@pytest.mark.parametrize("name", FAULTY)
def test_each_guard_fires_on_its_fault_alone(name):
    record = a_record(**FAULTY[name])
    # A healthy run on one device comes before it: what an epoch covers is compared with that one.
    before = [a_record(devices=1, batch=32)] if name in ("lost samples", "repeated samples") else []
    assert names(*before, record) == [name]
    found = the(name, *before, record)
    assert SAID.get(name, "") in found.says
    assert found.says.endswith(".") and found.hint.endswith(".")
    assert any(letter.isdigit() for letter in found.says)
    assert found.devices == record.spec.topology.world


DRIFTED = {"by_rank": ({}, {"weights": weights(1.5, 2.0)})}


@pytest.mark.parametrize(
    ("facts", "alone"),
    [
        ({"exchanged": False}, True),
        ({"exchanged": True}, False),
        ({"exchanged": None}, False),
        ({}, False),
        ({"exchanged": False, "sharded": True}, False),
    ],
)
@pytest.mark.parametrize("seen", ["drift", "same samples"])
def test_ranks_that_exchange_nothing_are_said_to_train_alone(facts, alone, seen):
    made = DRIFTED | {"facts": facts} if seen == "drift" else {"facts": SAME | facts}
    assert names(a_record(**made)) == ["no exchange" if alone else seen]
    equal = [rank.notes.facts for rank in a_record(facts=facts).ranks]
    assert not replicas.unsynchronised(equal)  # They may do so in a way that cannot be seen.


def test_some_ranks_may_read_the_same_samples():
    two = ({}, SAME, SAME, {})
    assert the("same samples", a_record(4, by_rank=two)).says.startswith("2 of 4 ranks")


@pytest.mark.parametrize(("optimizer", "rate"), [("SGD", "0.4"), ("AdamW", "0.2")])
def test_a_learning_rate_that_stays_is_asked_about(optimizer, rate):
    facts = {"optimizer": optimizer}
    found = the("learning rate", *(a_record(n, facts=facts) for n in (4, 1)))
    assert found.kind == "correct" and found.devices == 4
    assert "0.1 on 1 and on 4 devices, while the global batch grew from 16 to 64" in found.says
    assert found.hint.startswith("Is that your recipe?") and f"here to {rate}," in found.hint


SPLIT = {"split": True, "sharded": True}
STAGES = ({"weights": weights(1.0)}, {"weights": weights(1.0, shapes="another stage")})


@pytest.mark.parametrize(
    ("made", "parts", "unclear"),
    [
        ({"facts": SPLIT | SAME}, [(0, 2), (1, 2)], False),
        ({"facts": SPLIT | SAME | {"loads": False}}, [(0, 2), (1, 2)], False),
        ({"facts": SPLIT}, [(0, 1)] * 2, False),
        ({"facts": SAME}, [(0, 1)] * 2, False),
        ({"facts": SAME | {"sharded": True}}, [(0, 1)] * 2, False),
        ({"facts": SPLIT | SAME, "devices": 1}, [(0, 1)], False),
        ({"facts": SPLIT, "by_rank": ({}, SAME, {}, SAME), "devices": 4},
         [(0, 1), (0, 2), (0, 1), (1, 2)], False),
        ({"facts": SPLIT | {"samples": [None, None]}}, [(0, 1)] * 2, True),
        ({"facts": SPLIT | {"samples": []}}, [(0, 1)] * 2, True),
        ({"facts": SPLIT | {"samples": ["a", "a"], "loads": False}}, [(0, 1)] * 2, True),
        ({"facts": SPLIT, "by_rank": (SAME, {"samples": None})}, [(0, 1)] * 2, True),
        ({"facts": SPLIT | {"loads": False}, "by_rank": STAGES}, [(0, 1)] * 2, True),
        ({"facts": SPLIT, "by_rank": STAGES}, [(0, 1)] * 2, False),
        ({"facts": SPLIT | SAME, "by_rank": STAGES}, [(0, 2), (1, 2)], False),
    ],
)  # fmt: skip
def test_ranks_that_hold_parts_of_a_model_share_equal_batches(made, parts, unclear):
    facts = [rank.notes.facts for rank in a_record(**made).ranks]
    assert batch_sharing.parts(facts) == parts
    assert batch_sharing.unclear(facts) == unclear


def test_the_learning_rate_is_not_asked_about_where_samples_may_count_twice():
    one = a_record(devices=1)
    assert names(one, a_record()) == ["learning rate"]
    assert names(one, a_record(facts=SPLIT | {"samples": []})) == []
    told = a_record(facts=SPLIT | {"samples": []})
    spec = RunSpec(topology=Topology(1, 2), program=("train.py",), samples_per_step=16)
    told = replace(told, spec=spec)
    assert names(one, told) == ["learning rate"]


def test_a_global_batch_of_more_ranks_than_samples_is_what_they_add_up_to():
    ranks = a_record(devices=3).ranks
    columns = [replace(ranks[0].steps, samples=np.full(STEPS, own)) for own in (1, 1, 0)]
    thin = tuple(replace(rank, steps=own) for rank, own in zip(ranks, columns))
    (run,) = watched_runs([replace(a_record(devices=3), ranks=thin)])
    assert run.global_batch == 2


def test_a_rate_that_falls_from_the_first_step_on_is_asked_about_too():
    falling = [a_record(n, facts={"highest_rate": 0.1 * (1 - 0.007 * n)}) for n in (1, 4)]
    assert the("learning rate", *falling).devices == 4


@pytest.mark.parametrize(
    "larger",
    [
        a_record(4, batch=4, facts={"batch": 4}),
        a_record(4, facts={"rate": 0.4, "highest_rate": 0.4}),
        a_record(4, facts={"highest_rate": 0.4}),
        a_record(4, facts={"rate": None}),
    ],
    ids=["the batch is shared out", "the rate grows", "it is led up to", "it is not known"],
)
def test_a_learning_rate_that_follows_is_no_fault(larger):
    assert run_guards([a_record(1), larger]) == ()


def test_a_guard_is_told_once_of_the_fewest_devices():
    records = [a_record(n, facts={"emptied": STEPS, "rate": None}) for n in (4, 1, 2)]
    assert [(each.name, each.devices) for each in run_guards(records)] == [("empty cache", 1)]


def test_without_facts_nothing_is_checked():
    record = a_record(by_rank=({}, {}))
    for rank in record.ranks:
        rank.lines[0].pop("facts")
    assert run_guards([record]) is None
    assert run_guards([]) is None


def test_every_guard_is_in_the_guide():
    guide = (DOCS / "guides" / "guards.md").read_text()
    told = [line.split("|")[1].strip() for line in guide.splitlines() if line.startswith("| ")]
    assert (
        {guard.name for guard in GUARDS}
        == {*FAULTY, "learning rate"}
        == set(told) - {"guard", "---"}
    )


# What is noted in the program.


def test_calls_are_counted_and_everything_is_put_back():
    torch = pytest.importorskip("torch")
    from scalewise.watch.torch.call_counters import BLOCKING_METHODS, CallCounters

    empty, enter = torch.cuda.empty_cache, torch.autocast.__enter__
    calls = CallCounters()
    try:
        calls.install()
        calls.count_waits()
        torch.cuda.empty_cache()
        with torch.autocast("cpu"):
            assert torch.ones(1).item() == 1.0
        with pytest.raises(RuntimeError):
            torch.ones(1, device="meta").item()
    finally:
        calls.restore()
        torch.cuda.empty_cache = empty
    assert (calls.emptied_caches, calls.autocast, calls.waits.total()) == (1, True, 1)
    assert next(iter(calls.waits)).startswith("test_guards.py:")
    assert torch.autocast.__enter__ is enter
    assert not set(BLOCKING_METHODS) & set(vars(torch.Tensor))


def test_a_collective_that_may_average_is_told_from_others():
    dist = pytest.importorskip("torch.distributed")
    import torch

    from scalewise.watch.torch.private_api import may_average

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        some = torch.ones(2)
        averages = [dist.all_reduce, lambda *words, **named: dist.reduce(*words, 0, **named)]
        others = [
            lambda *words, **named: dist.broadcast(*words, 0, **named),
            lambda *words, **named: dist.all_gather([some.clone()], *words, **named),
        ]
        works = [each(some, async_op=True) for each in (*averages, *others)]
        assert [may_average((work,)) for work in works] == [True, True, False, False]
        assert may_average((object(),)) and may_average(())
        for work in works:
            work.wait()
    finally:
        dist.destroy_process_group()


def test_a_compiler_finds_pytorch_as_it_was():
    torch = pytest.importorskip("torch")
    from scalewise.watch.torch.facts import Facts

    empty, enter = torch.cuda.empty_cache, torch.autocast.__enter__
    try:
        facts = Facts(None)
        facts.install()
        assert torch.autocast.__enter__ is not enter
        facts.expect_compiler()
        assert torch.autocast.__enter__ is enter
    finally:
        torch.cuda.empty_cache = empty


def test_every_fact_that_is_written_has_a_field_to_be_read():
    keys = {item.metadata.get("key", item.name) for item in fields(ProgramFacts)}
    source = (SOURCES / "watch/torch/facts.py").read_text() + (
        SOURCES / "watch/torch/hooks.py"
    ).read_text()
    written = set(re.findall(r'noted\["(\w+)"\]', source))
    for path in STORED.glob("*/rank-*.jsonl"):
        for line in path.read_text().splitlines():
            written |= json.loads(line).get("facts", {}).keys()
    assert len(written) > 25 and written <= keys


# Real scripts.

FOUND_BY = {
    "same_samples": "same samples",
    "no_set_epoch": "set_epoch",
    "drifting_replicas": "no exchange",
    "different_init": "drift",
    "global_batch": "learning rate",
    "fixed_lr": "learning rate",
    "step_counts": "step counts",
    "unused_parameters": "unused parameters",
    "no_workers": "loader workers",
    "empty_cache": "empty cache",
    "one_thread": "threads",
    "eager": "compile",
    "item_each_step": "host waits",
    "same_device": "shared device",
    "fp32": "precision",
    "data_parallel": "DataParallel",
}
WORLDS = {"fixed_lr": (1, 2), "global_batch": (1, 2), "no_set_epoch": (1,), "data_parallel": (1,)}
"""The fewest devices that show a fault, where the truth says something else."""
TOGETHER = {
    "faults/wrong.py": (
        2, {"same samples", "drift", "step counts", "set_epoch"}
    ),
    "faults/untuned.py": (
        1, {"unused parameters", "loader workers", "empty cache", "compile"}
    ),
}  # fmt: skip
"""Scripts with many faults, on their devices: these run at every change."""
APART = ("data_parallel",)
"""Faults that go with no other: their own script runs at every change."""
ELSEWHERE = ("item_each_step", "fp32", "same_device", "one_thread")
"""Faults that show on accelerators, or on four cores and more: `pytest -m gpu` there."""


def chosen(always: tuple[str, ...]) -> list[Any]:
    """Return all faults: some at every change, the rest in a long campaign, some elsewhere."""
    found = []
    for fault in FAULTS:
        marks = [] if fault.name in always else [pytest.mark.soak]
        marks = [pytest.mark.gpu] if fault.name in ELSEWHERE else marks
        found.append(pytest.param(fault, marks=marks, id=fault.name))
    return found


def seen(script: Script, worlds: tuple[int, ...], folder: Path) -> list[Finding]:
    """Run a script on these devices, and return what the guards say of all its runs."""
    records = []
    for world in worlds:
        _, cause = run_script(script, world, folder / str(world))
        assert not cause
        for _, found in results.curves_with_records(folder / str(world) / "study"):
            records += found
    return list(run_guards(records) or ())


def test_every_fault_has_a_guard():
    assert {fault.name for fault in FAULTS} == set(FOUND_BY)


@pytest.mark.scripts
@pytest.mark.parametrize("fault", chosen(always=APART))
def test_the_guard_fires_on_a_faulty_script(fault, tmp_path):
    found = seen(fault.faulty, WORLDS.get(fault.name, (fault.world,)), tmp_path)
    assert FOUND_BY[fault.name] in [each.name for each in found]
    wrong = {each.name for each in found if each.kind == "correct"}
    assert wrong <= {FOUND_BY[fault.name]}


@pytest.mark.scripts
@pytest.mark.parametrize("path", TOGETHER)
def test_faults_are_found_together(path, tmp_path):
    world, expected = TOGETHER[path]
    found = seen(Script(path=path, truth=lambda world: None), (world,), tmp_path)
    assert expected <= {each.name for each in found}
    assert {each.name for each in found if each.kind == "correct"} <= expected


@pytest.mark.scripts
@pytest.mark.parametrize("fault", chosen(always=()))
def test_the_guard_is_silent_on_the_mended_script(fault, tmp_path):
    """Scripts of watch/test_scripts.py have no fault either: guards are silent there too."""
    torch = pytest.importorskip("torch")
    if fault.name == "same_device" and torch.cuda.device_count() < 2:
        pytest.skip("mended, it wants two accelerators")
    found = seen(fault.mended, WORLDS.get(fault.name, (fault.world,)), tmp_path)
    assert FOUND_BY[fault.name] not in [each.name for each in found]
    assert [each.says for each in found if each.kind == "correct"] == []


@pytest.mark.scripts
def test_guards_are_explained_even_on_one_device(tmp_path):
    (fault,) = [each for each in FAULTS if each.name == "no_set_epoch"]
    run_script(fault.faulty, 1, tmp_path)
    ((curve, records),) = results.curves_with_records(tmp_path / "study")
    found = explain(curve, records)
    assert [each.name for each in found.correct] == ["set_epoch"]
    assert "compile" in [each.name for each in found.tune]
    section = explanation_sections.sections([found])[0]
    alert = "Not reliable [set-epoch]: All 3 passes over the data had the same order"
    # A busy machine adds an alert of its own.
    (at,) = [at for at, line in enumerate(section.alerts) if line.startswith(alert)]
    assert section.alerts[at + 1] == f"  fix: {found.correct[0].hint}"
    tune = "tune: Nothing is compiled: an eager step takes "
    assert any(line.startswith(tune) for line in section.lines)
    (told,) = json.loads(explanation_sections.as_json([found]))["curves"]
    assert told["correct"][0]["name"] == "set_epoch" and told["correct"][0]["devices"] == 1
    assert {each["kind"] for each in told["tune"]} == {"tune"}
