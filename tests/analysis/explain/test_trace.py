"""The deep look: what a trace says on made-up events, and on real runs against the recording."""

import gzip
import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from scalewise import results
from scalewise.analysis.explain import explain
from scalewise.analysis.explain.trace_analysis import (
    FETCH_OPERATOR,
    UNPACK_OPERATOR,
    classify_trace,
    compare_quantity,
    compare_with_trace,
    traced_step_times,
)
from scalewise.analysis.measure.window import lifetime_parts, steady_window
from scalewise.record.read import RankRecord, RunRecord, Steps
from scalewise.record.schema import LoaderTiming
from scalewise.record.trace import Event, Lap, Trace, read_trace
from scalewise.report import explanation_sections
from scalewise.report.text.explanation import point_action
from watch_script import run
from watched_scripts import HERE, Script

MS = 1e-3


def agrees(comparison):
    """Say whether no check of a relevant size disagrees."""
    return all(check.agrees is not False for check in comparison.checks)


def op(name, start, end, thread="main"):
    return Event(name, "cpu_op", thread, start * MS, end * MS)


def note(name, start, end, thread="main"):
    return Event(name, "user_annotation", thread, start * MS, end * MS)


def kernel(name, start, end, stream="7"):
    return Event(name, "kernel", stream, start * MS, end * MS)


def copy(name, start, end, stream):
    return Event(name, "gpu_memcpy", stream, start * MS, end * MS)


def a_trace(*events, length=10, steps=1):
    each = length / steps
    laps = [Lap(k, "forward", k * each * MS, (k + 1) * each * MS) for k in range(steps)]
    return Trace(0, events, tuple(laps))


def seen(*events, **shape):
    """Return where the step went, in milliseconds."""
    found = traced_step_times(classify_trace(a_trace(*events, **shape)))
    assert found.compute + found.exposed + found.input + found.idle == pytest.approx(found.step)
    assert found.overlap + found.exposed <= found.communication + 1e-12
    names = ("compute", "communication", "overlap", "exposed", "unpacking", "input", "idle")
    return {name: pytest.approx(getattr(found, name) / MS) for name in names}


def test_communication_behind_computation_is_hidden_and_the_rest_is_exposed():
    found = seen(
        op("aten::mm", 0, 4),
        op("c10d::allreduce_", 4, 4.1),
        op("aten::mm", 4.1, 6),
        note("gloo:all_reduce", 4, 8, "gloo"),
    )
    assert found["compute"] == 6
    assert found["communication"] == 4
    assert found["overlap"] == 2
    assert found["exposed"] == 2
    assert found["idle"] == 2


def test_nested_operators_count_once_and_wrappers_not_at_all():
    found = seen(
        note("DistributedDataParallel.forward", 0, 9),
        op("aten::linear", 1, 4),
        op("aten::addmm", 1.5, 3.5),
    )
    assert found["compute"] == 3
    assert found["idle"] == 7


def test_a_collective_lasts_from_being_asked_for_and_unpacking_belongs_to_it():
    found = seen(
        op("autograd::engine::evaluate_function: AccumulateGrad", 0, 2),
        op("torch::distributed::reducer::mul_out", 0, 1.5),
        op("c10d::allreduce_", 1.5, 2),
        note("gloo:all_reduce", 4, 6, "gloo"),
        op(UNPACK_OPERATOR, 6, 7),
        op("aten::copy_", 6.1, 6.9),
    )
    assert found["compute"] == 2
    assert found["exposed"] == 5
    assert found["unpacking"] == 1


def test_an_operator_that_waits_inside_for_a_collective_counts_by_its_parts():
    found = seen(
        op("RegisterPostBackwardFunctionBackward", 0, 9),
        op("aten::cat", 0, 2),
        op("c10d::_reduce_scatter_base_", 2, 2.5),
        note("gloo:reduce_scatter", 2.2, 8, "gloo"),
    )
    assert found["compute"] == 2.5
    assert found["exposed"] == 5.5


def test_collectives_on_several_threads_are_not_added_up():
    found = seen(
        op("c10d::allreduce_", 0, 0.5),
        op("c10d::allreduce_", 1, 1.5),
        note("gloo:all_reduce", 0, 5, "one"),
        note("gloo:all_reduce", 1, 6, "two"),
        op("aten::add_", 2, 3, "one"),
    )
    assert found["communication"] == 6
    assert found["compute"] == 1, "what a collective's own thread does hides nothing"
    assert found["exposed"] == 5


def test_short_gaps_between_operators_are_work():
    found = seen(op("a", 0, 1), op("b", 1.05, 2), op("c", 4, 5), note("gloo:x", 0, 5, "gloo"))
    assert found["compute"] == 3
    assert found["exposed"] == 2


def test_a_loader_without_workers_waits_also_where_it_computes():
    found = seen(
        note(f"{FETCH_OPERATOR}#_SingleProcessDataLoaderIter.__next__", 0, 4), op("aten::x", 1, 3)
    )
    assert found["input"] == 4
    assert found["compute"] == 0


def test_on_a_device_kernels_compute_and_nccl_communicates():
    found = seen(
        op("aten::mm", 0, 1),
        note(f"{FETCH_OPERATOR}#next", 0, 3),
        kernel("gemm", 1, 5),
        kernel("ncclDevKernel_AllReduce", 4, 7, "20"),
        op("c10d::allreduce_", 3, 9),
    )
    assert found["compute"] == 4
    assert found["communication"] == 3
    assert found["exposed"] == 2
    assert found["input"] == 1, "only while the device has nothing to do"


def test_gloo_on_a_device_copies_on_streams_of_its_own():
    found = seen(
        copy("Memcpy HtoD (Pageable)", 0, 1, "7"),
        kernel("gemm", 1, 4),
        op("c10d::allreduce_", 3, 3.2),
        note("gloo:all_reduce", 3.5, 7, "gloo"),
        copy("Memcpy HtoD (Pinned)", 7, 8, "20"),
    )
    assert found["communication"] == 5
    assert found["exposed"] == 4


def test_work_that_a_device_ends_late_is_of_the_traced_steps():
    assert seen(kernel("gemm", 8, 12))["compute"] == 4


def a_record(sync, fetched, index=(21, 22, 23)):
    count = len(index)
    steps = Steps(
        index=np.array(index),
        seconds=np.full(count, 10 * MS),
        samples=np.ones(count, dtype=np.int64),
        phases={"sync": np.array(sync) * MS, "input": np.array(fetched) * MS},
    )
    rank = RankRecord(0, "here", (), steps, (), traced=steps)
    return RunRecord(HERE, None, 0.0, 1.0, {}, (rank,))


def three_steps(*exposed):
    events = [note("gloo:x", 10 * k, 10 * k + e, "gloo") for k, e in enumerate(exposed)]
    trace = a_trace(*events, length=30, steps=3)
    laps = tuple(replace(lap, step=21 + lap.step) for lap in trace.laps)
    return replace(trace, laps=laps)


def test_the_typical_step_is_compared_on_a_cpu():
    found = compare_with_trace(a_record([4, 4, 9], [0, 0, 0]), [three_steps(4, 4, 4)])
    exposed, fetched = found.checks
    assert exposed.ratio == pytest.approx(1.0)
    assert exposed.agrees is True
    assert fetched.agrees is None, "nothing there is nothing to compare"
    assert agrees(found)


def test_a_difference_is_told():
    found = compare_with_trace(a_record([5, 5, 5], [0, 0, 0]), [three_steps(4, 4, 4)])
    assert found.checks[0].agrees is False
    assert not agrees(found)


def test_ten_percent_is_the_limit_on_both_sides():
    told = [
        compare_quantity(0, "input", light, 1.0, 5.0).agrees for light in (0.89, 0.91, 1.09, 1.11)
    ]
    assert told == [False, True, True, False]
    assert compare_quantity(0, "input", 0.2, 0.1, 5.0).agrees is None


def test_steps_without_a_trace_have_none():
    assert compare_with_trace(a_record([4], [0], index=(21,)), []) is None


# Real runs.

HEAVY = Script(path="heavy.py", truth=lambda devices: None)


def flagged(rank):
    """Return the steps that were flagged as traced."""
    lines = [line for line in rank.lines if "traced" in line.get("each", {})]
    return [k for line in lines for k, t in zip(line["index"], line["each"]["traced"]) if t]


def heavy(folder, *args, **fields):
    """Run the script and return its record, its folder and what explain makes of it."""
    ranks, cause = run(replace(HEAVY, args=tuple(args)), 2, folder, **fields)
    assert cause == ""
    ((curve, records),) = results.curves_with_records(folder / "study")
    found = explain(curve, records, traces=results.traces_by_folder(records))
    return records[0], ranks, found


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """Return a function that traces five steps of the script, once for each way to ask."""

    @cache
    def carry_out(*args, attempt=0):
        return heavy(tmp_path_factory.mktemp("traced"), *args, trace=5)

    return carry_out


@pytest.mark.scripts
@pytest.mark.alone
def test_traces_are_written_and_their_steps_are_not_measured(traced):
    record, ranks, found = traced(attempt=0)
    for rank in ranks:
        assert flagged(rank) == [20, 21, 22, 23, 24, 25, 26]
    for rank in record.ranks:
        assert set(range(20, 27)).isdisjoint(rank.steps.index.tolist())
        trace = read_trace(record.folder, rank.rank)
        assert {lap.step for lap in trace.laps} == {21, 22, 23, 24, 25}
        assert any(each.name == "gloo:all_reduce" for each in trace.events)
        raw = gzip.decompress((record.folder / f"trace-0000{rank.rank}.json.gz").read_bytes())
        shown = {each["name"] for each in json.loads(raw)["traceEvents"]}
        assert {"scalewise: sync", "scalewise: forward"} <= shown
        largest = json.loads((record.folder / f"operators-0000{rank.rank}.json").read_text())
        assert {"name", "calls", "cpu", "device"} == set(largest["operators"][0])
        assert 5 < len(largest["operators"]) <= 20
    window = steady_window(record)
    assert window.steps + window.first + 7 * (window.first < 20) == 60
    assert window.samples == 2 * 32 * window.steps
    parts = lifetime_parts(record)
    assert parts["trace"] > 0
    assert sum(parts.values()) == pytest.approx(record.ended - record.started)
    assert [each.rank for each in found.points[0].trace.ranks] == [0, 1]


@pytest.mark.scripts
def test_all_ranks_of_a_program_stop_together_and_are_traced_before(tmp_path):
    asked = {"trace": 3, "stop_after": 12, "samples_per_step": 99}
    record, ranks, found = heavy(tmp_path, "--workers", "1", **asked)
    assert [rank.column("samples") for rank in ranks] == [[99] * 12] * 2
    assert {lap.step for lap in read_trace(record.folder, 0).laps} == {8, 9, 10}
    assert found.points[0].trace.ranks[0].steps == 3
    # A loader that is not timed is known all the same.
    assert record.ranks[0].notes.loader == LoaderTiming(workers=1, batch=32, batches=0, rate=None)
    assert "loaders" not in lifetime_parts(record)


@pytest.mark.scripts
def test_a_profiler_that_cannot_start_lets_the_training_go_on(tmp_path):
    script = tmp_path / "profiled.py"
    script.write_text(
        "import torch\n"
        "from torch.profiler import profile\n"
        "model = torch.nn.Linear(4, 4)\n"
        "rule = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "with profile() as own:\n"
        "    for _ in range(30):\n"
        "        model(torch.ones(2, 4)).sum().backward()\n"
        "        rule.step()\n"
        "assert any(each.key == 'aten::linear' for each in own.key_averages())\n"
    )
    own = replace(HEAVY, path=str(script))
    (rank,), cause = run(own, 1, tmp_path / "out", trace=3)
    assert cause == ""
    assert rank.find("outline")["steps"] == 30
    assert rank.find("untraced")


@pytest.mark.scripts
@pytest.mark.alone
@pytest.mark.parametrize(
    ("quantity", "args"),
    [
        ("exposed communication", []),
        pytest.param(
            "exposed communication", ["--bucket-mb", "1", "--bucket-view"], marks=pytest.mark.soak
        ),
        pytest.param("input", ["--slow-loader", "0.0005"], marks=pytest.mark.soak),
    ],
)
def test_the_light_measurement_agrees_with_the_trace(quantity, args, traced):
    for attempt in range(3):  # Others may be at work on this machine.
        _, _, found = traced(*args, attempt=attempt)
        trace = found.points[0].trace
        if agrees(trace):
            break
    assert agrees(trace), [(each.quantity, each.ratio) for each in trace.checks]
    assert any(each.agrees for each in trace.checks if each.quantity == quantity)
    (section,) = explanation_sections.sections([found])
    titles = [table.title for table in section.tables]
    assert any("Light measurement against the trace" in title for title in titles)
    told = json.loads(explanation_sections.as_json([found]))["curves"][0]["points"][0]["trace"]
    assert {"ranks", "checks"} == set(told)


@pytest.mark.scripts
@pytest.mark.alone
def test_the_loader_alone_says_how_many_workers_would_do(tmp_path):
    args = ["--slow-loader", "0.002", "--workers", "1", "--width", "64", "--steps", "40"]
    record, _, found = heavy(tmp_path, *args, loaders_alone=True)
    for rank in record.ranks:
        loader = rank.notes.loader
        assert loader.workers == 1
        assert loader.batch == 32
        assert loader.batches == 38
        assert 250 < loader.rate < 505
    assert lifetime_parts(record)["loaders"] > 0
    assert "raise workers from 1 to" in point_action(found.points[0])


@pytest.mark.scripts
def test_a_program_that_ends_while_it_is_traced_ends_as_it_would(tmp_path):
    script = tmp_path / "short.py"
    script.write_text(SHORT)
    _, cause = run(Script(path=str(script), truth=None), 1, tmp_path, trace=5)
    assert "failed after step 23: ValueError: boom" in cause
    assert "SIGSEGV" not in next(tmp_path.glob("study/*/log.txt")).read_text()


SHORT = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(60):
    if step == 23:
        raise ValueError("boom")
    optimizer.zero_grad()
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
"""
