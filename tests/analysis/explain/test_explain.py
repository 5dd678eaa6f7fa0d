"""Causes that were put in must come out on their own line, and the lines sum to the whole."""

import json
import re
import sys
from dataclasses import replace
from math import prod

import numpy as np
import pytest
import tomllib
from hypothesis import given, settings
from hypothesis import strategies as some

import scalewise
from builders import a_run, a_study
from fake_study import play, play_all
from paths import DOCS
from scalewise import results
from scalewise.analysis.explain import (
    CAUSES,
    COMPUTE_AND_COMMUNICATION,
    Breakdown,
    Finding,
    RankTime,
    explain,
)
from scalewise.analysis.explain.breakdown import LoaderRates, PointFacts
from scalewise.analysis.explain.chain import (
    build_chain,
    comparable_chains,
    factors_by_cause,
    mean_compute_per_sample,
    relative_factors,
    seconds_by_cause,
)
from scalewise.analysis.explain.whatif import Replay
from scalewise.analysis.measure import Point, scaling_curves
from scalewise.analysis.measure.doubt import SEVERITIES
from scalewise.analysis.measure.ledger import Ledger, build_ledger
from scalewise.analysis.measure.window import Window
from scalewise.cli import main
from scalewise.errors import SpecError
from scalewise.frameworks.fake import Fake, Law
from scalewise.record.node_samples import NodeRecord
from scalewise.record.read import read_rank
from scalewise.record.write import write_json
from scalewise.report import explanation_sections, formats
from scalewise.report.text.doubts import DOUBT_TEXT, warning_text
from scalewise.report.text.explanation import (
    boundary_sentence,
    communication_sentence,
    exchange_sentence,
    point_action,
    point_sentence,
    verdict_text,
)
from scalewise.spec import StudySpec, Topology

CLEAN = {"host": 0.0, "compute": 1e-3, "ring": 1e-3, "network": 1e-3, "latency": 0.0}
NOISY = {"noise": 0.05, "drift": 0.03, "slow": 0.004, "wait": 0.003, "jitter": 0.02}


def measured(study, folder, change=lambda record: record):
    """Return the curve and the records of a study with one curve, each record changed."""
    records = [change(record) for record in play_all(study, folder)]
    (curve,) = scaling_curves(study, records)
    return curve, records


def explained(study, folder, change=lambda record: record, **more):
    return explain(*measured(study, folder, change), **more)


def with_phases(record, change):
    """Return a record whose ranks' phases are changed."""

    def rank(each):
        return replace(each, steps=replace(each.steps, phases=change(each)))

    return replace(record, ranks=tuple(rank(each) for each in record.ranks))


def without(*names):
    """Return a change that takes phases out of a record."""
    return lambda record: with_phases(
        record,
        lambda rank: {k: v for k, v in rank.steps.phases.items() if k not in names},
    )


def total(parts):
    return sum(each for each in parts.values() if each is not None)


STUDIES = {
    "one run": {"batch": 32, "steps": 60, "options": {"noise": 0.05}},
    "repeats": {"batch": 32, "steps": 60, "options": NOISY, "repeats": 3},
    "epochs": {"batch": 32, "options": NOISY, "repeats": 2, "epochs": 3, "data": "synthetic:8192"},
    "baseline of four": {"options": NOISY, "repeats": 2, "topologies": ["1x4", "2x4", "4x4"]},
    "uneven": {"batch": 32, "options": {"uneven": 0.4, "noise": 0.02}, "repeats": 2},
    "strong": {"options": NOISY, "repeats": 3, "global_batch": 64},
    "sampled": {"options": {"noise": 0.2}, "steps": 2500, "topologies": ["1x1", "1x2"]},
}


@pytest.mark.parametrize("changes", STUDIES.values(), ids=STUDIES)
def test_the_factors_multiply_to_the_measured_efficiency(changes, tmp_path):
    curve, records = measured(a_study(**changes), tmp_path)
    found = explain(curve, records)
    for point, breakdown in zip(curve.points, found.points, strict=True):
        assert list(breakdown.factors) == list(CAUSES)
        assert prod(breakdown.factors.values()) == pytest.approx(point.efficiency.value, rel=1e-9)
        assert breakdown.efficiency == point.efficiency.value
    assert found.points[0].factors == pytest.approx(dict.fromkeys(CAUSES, 1.0), rel=1e-12)


@pytest.mark.parametrize("changes", STUDIES.values(), ids=STUDIES)
def test_the_lines_sum_to_the_step_and_to_the_job(changes, tmp_path):
    curve, records = measured(a_study(**changes), tmp_path)
    for point, found in zip(curve.points, explain(curve, records).points, strict=True):
        assert found.ideal + total(found.seconds) == pytest.approx(found.step, rel=1e-12)
        assert sum(found.complete.values()) == pytest.approx(point.time.value, rel=1e-12)
        assert found.seconds["orchestration"] >= 0 >= found.seconds["unexplained"]
        assert list(found.seconds) == [*CAUSES, "unexplained"]


INJECTED = {
    "slow": ("balance", {"slow": 0.008}, 0.008),
    "wait": ("input", {"wait": 0.008}, 0.008),
    "ring": ("transfer", {"ring": 0.005}, 0.004 * 2 * 3 / 4),
    "network": ("transfer", {"network": 0.009}, 0.008),
    "uneven": ("balance", {"uneven": 0.25}, 0.008),
}


@pytest.mark.parametrize("noise", [{}, {"noise": 0.02}], ids=["still", "noisy"])
@pytest.mark.parametrize(("cause", "options", "put_in"), INJECTED.values(), ids=INJECTED)
def test_an_injected_cause_lands_on_its_own_line(cause, options, put_in, noise, tmp_path):
    def lines(changes):
        study = a_study(
            batch=32, steps=400, topologies=["1x1", "2x4"], options=CLEAN | noise | changes
        )
        return explained(study, tmp_path / f"{len(changes)}").points[1].seconds

    before, after = lines({}), lines(options)
    moved = {name: (after[name] - before[name]) / put_in for name in after}
    assert 0.9 <= moved.pop(cause) <= 1.1
    assert all(abs(each) < 0.1 for each in moved.values()), moved


@pytest.mark.parametrize(
    ("option", "span"), [("launch", "launch"), ("checkpoint", "checkpoint"), ("data", "data")]
)
def test_a_slow_start_or_end_lands_in_its_part_of_the_job(option, span, tmp_path):
    study = a_study(topologies=["1x2"])
    slowed = a_study(topologies=["1x2"], options={option: getattr(Law(), option) + 7.0})
    before = explained(study, tmp_path / "a").points[0].complete
    after = explained(slowed, tmp_path / "b").points[0].complete
    grown = {name: seconds - before.get(name, 0.0) for name, seconds in after.items()}
    assert grown.pop(span) == pytest.approx(7.0, rel=0.01)
    assert all(abs(each) < 0.07 for each in grown.values())


def test_a_part_of_the_job_grows_with_devices(tmp_path):
    last = explained(a_study(options={"rendezvous": 2.0}), tmp_path).points[-1]
    assert last.grown["rendezvous"] == pytest.approx(4.0, abs=1e-3)
    assert last.grown["launch"] == pytest.approx(0.0, abs=1e-3)


def test_scattering_ranks_are_a_matter_of_balance(tmp_path):
    study = a_study(batch=64, steps=300, options=CLEAN | {"jitter": 0.1}, topologies=["1x1", "1x8"])
    found = explained(study, tmp_path).points[1]
    assert found.cause == "balance"
    assert found.seconds["balance"] > 0.8 * (found.step - found.ideal)
    assert "take turns" in point_action(found)


def test_a_rank_that_is_slow_outside_its_computation_is_a_matter_of_balance_too(tmp_path):
    def elsewhere(record):  # The slow rank logs, saves or frees memory: no phase tells of it.
        def phases(rank):
            late = 0.01 if rank.rank == 3 else 0.0
            found = rank.steps.phases
            return {**found, "backward": found["backward"] - late}

        return with_phases(record, phases) if len(record.ranks) == 4 else record

    study = a_study(batch=64, options=CLEAN | {"slow": 0.01})
    found = explained(study, tmp_path, elsewhere).points[-1]
    assert found.seconds["balance"] == pytest.approx(0.01, rel=1e-3)
    assert found.slowest.other == pytest.approx(0.01, rel=1e-3)
    assert abs(found.seconds["orchestration"]) < 1e-5


def test_one_rank_that_waits_for_input_is_a_matter_of_input(tmp_path):
    def starved(record):  # The last rank's extra time is its loader's.
        def phases(rank):
            late = 0.01 if rank.rank == 3 else 0.0
            found = rank.steps.phases
            return {**found, "backward": found["backward"] - late, "input": found["input"] + late}

        return with_phases(record, phases) if len(record.ranks) == 4 else record

    study = a_study(batch=64, options=CLEAN | {"slow": 0.01})
    found = explained(study, tmp_path, starved).points[-1]
    assert found.seconds["input"] == pytest.approx(0.01, rel=1e-3)
    assert abs(found.seconds["balance"]) < 1e-5


def test_what_the_phases_leave_over_is_orchestration(tmp_path):
    def fewer(record):  # A tenth of every phase is not accounted for.
        return with_phases(record, lambda r: {k: 0.9 * v for k, v in r.steps.phases.items()})

    found = explained(a_study(batch=64, options=CLEAN), tmp_path, fewer).points[-1]
    assert found.seconds["orchestration"] == pytest.approx(0.1 * found.step, rel=1e-3)


def test_parts_that_exceed_the_measured_step_are_shown(tmp_path):
    def phases(rank):  # Two clocks that disagree: the phases are longer than the step.
        found = rank.steps.phases
        return {**found, "forward": found["forward"] * 2, "other": -found["forward"]}

    def more(record):
        return with_phases(record, phases)

    found = explained(a_study(batch=64, options=CLEAN), tmp_path, more).points[-1]
    assert found.seconds["unexplained"] < -0.05 * found.step
    assert found.ideal + total(found.seconds) == pytest.approx(found.step, rel=1e-12)


def test_without_phases_nothing_is_made_up(tmp_path):
    found = explained(a_study(), tmp_path, lambda r: with_phases(r, lambda rank: {}))
    for point in found.points:
        assert set(point.factors.values()) == set(point.seconds.values()) == {None}
        assert (point.regime, point.compute, point.exposed, point.ratio) == (None,) * 4
        assert (point.costs, point.ranks) == ({}, ())
        assert [each.change for each in point.what_if] in ([], ["no validation"])
        assert point.efficiency > 0
    last = found.points[-1]
    sentence = point_sentence(last)
    assert sentence.startswith("On 4 devices a step takes 13.2 ms, and at the baseline's pace")
    assert "cannot be known" in sentence
    assert "would take 10 ms" in sentence
    assert "no causes are known" in warning_text(last.warnings[-1])


def test_communication_that_is_not_told_apart_is_unknown(tmp_path):
    def inside(record):  # As an engine that sees one backward, communication included.
        return with_phases(
            record,
            lambda rank: {
                "forward": rank.steps.phases["forward"],
                "backward": rank.steps.phases["backward"] + rank.steps.phases["sync"],
            },
        )

    curve, records = measured(a_study(), tmp_path, inside)
    found = explain(curve, records)
    alone, last = found.points[0], found.points[-1]
    assert alone.factors["transfer"] == 1.0  # One rank has nobody to talk to.
    assert last.factors["transfer"] is last.seconds["transfer"] is last.exposed is None
    known = [each for each in last.factors.values() if each is not None]
    assert prod(known) == pytest.approx(last.efficiency, rel=1e-9)
    assert "not measured separately" in point_sentence(last)
    assert "transfer is unknown" in warning_text(last.warnings[-1])
    assert last.shares["communication"] is None and "compute" not in last.shares
    assert last.regime == COMPUTE_AND_COMMUNICATION and last.compute is None
    assert found.left_compute_at is None
    assert not any(each.change == "twice the link" for each in last.what_if)
    (section,) = explanation_sections.sections([found])
    assert not any("computation is" in line for line in section.lines)
    said = "on 4 devices computation and communication, not measured apart, are the largest part"
    assert any(said in line for line in section.lines)


def fused(record):
    """Return a record as of an engine whose only process does the steps of all devices."""

    def phases(rank):
        waited = 0.3 * rank.steps.seconds
        return {"input": waited, "step": rank.steps.seconds - waited}

    return with_phases(replace(record, ranks=record.ranks[:1]), phases)


def test_of_a_fused_step_by_one_process_neither_balance_nor_loaders_are_told(tmp_path):
    curve, records = measured(a_study(), tmp_path, fused)
    found = explain(curve, records)
    alone, last = found.points[0], found.points[-1]
    assert alone.factors["balance"] == alone.factors["transfer"] == 1.0
    for told in (last.factors, last.seconds):
        assert told["balance"] is told["transfer"] is None
    assert "balance" not in last.costs and last.shares["waiting"] is None
    known = [each for each in last.factors.values() if each is not None]
    assert prod(known) == pytest.approx(last.efficiency, rel=1e-9)
    assert "transfer and balance are unknown" in warning_text(last.warnings[-1])
    for point in found.points:
        assert not {each.change for each in point.what_if} - {"no validation"}
    action = point_action(a_breakdown("input", input=0.007, has_workers=False))
    assert "workers" not in action.replace("without workers", "")


def test_a_step_in_which_a_phase_was_not_measured_is_left_out(tmp_path):
    def gaps(record):
        def phases(rank):
            here = np.arange(len(rank.steps.index)) % 4 == rank.rank % 2
            sync = np.where(here, np.nan, rank.steps.phases["sync"])
            backward = rank.steps.phases["backward"] + np.where(here, 1.0, 0.0)
            return {**rank.steps.phases, "sync": sync, "backward": backward}

        return with_phases(record, phases) if len(record.ranks) > 1 else record

    study = a_study(options=CLEAN)
    whole = explained(study, tmp_path / "a").points[-1]
    some_known = explained(study, tmp_path / "b", gaps).points[-1]
    assert some_known.seconds == pytest.approx(whole.seconds, abs=1e-6)


def test_a_null_is_unknown_and_so_is_communication_that_is_not_there(tmp_path):
    lines = [
        {"attempt": 1, "outline": {"steps": 3, "seen": 24}},
        {"attempt": 1, "index": [0, 1], "each": {
            "seconds": [3, 3], "samples": [8, 8], "sync": [None, 1.0], "forward": [2.0, 2.0]}},
        {"attempt": 1, "index": [2], "each": {"seconds": [3], "samples": [8], "input": [1.0]}},
        {"attempt": 1, "ended": 1.0},
    ]  # fmt: skip
    (tmp_path / "rank-00000.jsonl").write_text("\n".join(map(json.dumps, lines)))
    phases = read_rank(tmp_path, 0, 1).steps.phases
    np.testing.assert_array_equal(phases["sync"], [np.nan, 1.0, np.nan])
    np.testing.assert_array_equal(phases["forward"], [2.0, 2.0, 0.0])
    np.testing.assert_array_equal(phases["input"], [0.0, 0.0, 1.0])


def test_repeats_of_which_one_does_not_tell_communication_still_sum_up(tmp_path):
    def first_only(record):
        alone = record.spec.repeat == 0 or len(record.ranks) == 1
        return record if alone else without("sync")(record)

    last = explained(a_study(repeats=2), tmp_path, first_only).points[-1]
    assert last.factors["transfer"] is None
    known = [each for each in last.factors.values() if each is not None]
    assert prod(known) == pytest.approx(last.efficiency, rel=1e-9)
    assert last.ideal + total(last.seconds) == pytest.approx(last.step, rel=1e-12)


def test_only_steady_steps_that_all_ranks_kept_are_compared(tmp_path):
    def torn(record):
        first, *rest = record.ranks
        cut = first.steps
        fewer = replace(
            cut,
            index=cut.index[:-5],
            seconds=cut.seconds[:-5],
            samples=cut.samples[:-5],
            phases={name: column[:-5] for name, column in cut.phases.items()},
        )
        return replace(record, ranks=(replace(first, steps=fewer), *rest))

    record = torn(play(a_run(topology="1x2", steps=20), tmp_path))
    assert build_ledger(record, 3).compute.shape == (2, 12)
    assert build_ledger(record, 18) is None


def test_hidden_communication_is_told_where_it_is_known_and_takes_no_time(tmp_path):
    def hide(record):
        return with_phases(
            record, lambda r: {**r.steps.phases, "hidden": np.full(len(r.steps.index), 0.001)}
        )

    plain = explained(a_study(), tmp_path / "a").points[-1]
    found = explained(a_study(), tmp_path / "b", hide).points[-1]
    assert (plain.hidden, found.hidden) == (None, pytest.approx(0.001))
    assert found.seconds == pytest.approx(plain.seconds, abs=1e-6)
    assert found.exposed == pytest.approx(Law().transfer(Topology(1, 4)), rel=1e-3)
    assert found.ratio == pytest.approx(found.exposed / found.compute)


def test_the_slowest_rank_is_named(tmp_path):
    study = a_study(batch=64, options={"slow": 0.02}, topologies=["1x1", "2x2"])
    found = explained(study, tmp_path).points[1]
    assert (found.slowest.rank, found.slowest.host) == (3, "node-1")
    assert found.slowest.behind == pytest.approx(0.02, rel=1e-3)
    assert found.cause == "balance"
    action = point_action(found)
    assert "Look at rank 3 on node-1: in every step its own work takes 20 ms longer" in action
    assert [each.sync > 0.02 for each in found.ranks] == [True, True, True, False]


def test_uneven_batches_are_named(tmp_path):
    found = explained(a_study(batch=64, options={"uneven": 0.5}), tmp_path).points[-1]
    assert found.cause == "balance"
    assert "different numbers of samples" in point_action(found)


def test_the_regime_is_the_largest_share_and_the_curve_says_where_it_turns(tmp_path):
    options = {"compute": 1e-3, "host": 0.0, "ring": 0.0, "latency": 0.0, "network": 0.02}
    found = explained(a_study(batch=10, options=options, topologies=["1x2", "2x2"]), tmp_path)
    assert [point.regime for point in found.points] == ["compute", "communication"]
    assert found.left_compute_at == 4
    told = formats.plain_text(explanation_sections.sections([found]))
    assert told.count("largest part of a step") == 1
    assert "from 4 devices on: communication is" in told
    assert found.points[1].shares["communication"] == pytest.approx(2 / 3, rel=1e-3)
    assert total(found.points[1].shares) == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize(
    ("network", "verdict"), [(1e-4, "scales well"), (4e-3, "scales partly"), (0.1, "scales badly")]
)
def test_the_largest_point_decides_whether_it_scales(network, verdict, tmp_path):
    options = CLEAN | {"network": network, "ring": 0.0}
    found = explained(a_study(options=options, topologies=["1x1", "2x1"]), tmp_path)
    assert verdict_text(found.scales) == verdict
    assert (found.scales.devices, found.scales.efficiency.count) == (2, 1)
    assert found.correct is None


def test_what_leaving_the_node_costs(tmp_path):
    study = a_study(options=CLEAN | {"network": 0.02}, topologies=["1x1", "1x2", "2x2", "4x2"])
    found = explained(study, tmp_path)
    edge = found.boundary
    assert (edge.devices, edge.nodes, edge.cause) == ((2, 4), 2, "transfer")
    assert edge.efficiency == (found.points[1].efficiency, found.points[2].efficiency)
    assert edge.factor == pytest.approx(
        found.points[2].factors["transfer"] / found.points[1].factors["transfer"]
    )
    assert boundary_sentence(edge) in formats.plain_text(explanation_sections.sections([found]))


def test_a_network_that_costs_nothing_is_said_to(tmp_path):
    study = a_study(options=CLEAN | {"ring": 0.0, "network": 0.0}, topologies=["1x2", "2x2"])
    assert "costs little so far" in boundary_sentence(explained(study, tmp_path).boundary)


def test_nodes_on_one_host_have_no_boundary(tmp_path):
    def rehearsed(record):
        return replace(record, ranks=tuple(replace(each, host="one") for each in record.ranks))

    found = explained(a_study(topologies=["1x2", "2x2"]), tmp_path, rehearsed)
    assert found.boundary is None
    assert explained(a_study(topologies=["1x1", "1x2"]), tmp_path / "other").boundary is None


def test_a_clock_that_is_off_is_told_of(tmp_path):
    study = a_study(topologies=["2x1"])
    curve, (record,) = measured(study, tmp_path)
    nodes = [
        replace(an_idle_node(record), host=f"node-{place}", ahead=ahead, within=0.001)
        for place, ahead in enumerate([None, -2.5])
    ]
    found = explain(curve, [record], nodes={record.folder: nodes})
    texts = map(warning_text, found.points[0].warnings)
    (told,) = [text for text in texts if "clock" in text]
    assert "the clock of node-1 is 2.50 s behind the first node's" in told
    assert "-2500.00 ± 1.00" in formats.plain_text(explanation_sections.sections([found]))


def an_idle_node(record):
    """Return what a sampler sees of a machine on which nothing happens."""
    at = np.linspace(record.started, record.ended, 5)
    nothing = np.zeros(5)
    return NodeRecord(
        host="", interval=1.0, cores=1, memory_total=None, at=at, devices=(),
        cpu=nothing, own=nothing, memory=nothing, energy=nothing, spent=nothing,
    )  # fmt: skip


def test_one_point_alone_has_no_verdict(tmp_path):
    found = explained(a_study(topologies=["1x2"]), tmp_path)
    assert found.scales is None
    assert "not checked" in formats.plain_text(explanation_sections.sections([found]))


def test_what_it_costs(tmp_path):
    study = a_study(batch=64, steps=100, options={"slow": 0.02})
    found = explained(study, tmp_path, price=2.5).points[-1]
    cost = found.costs["balance"]
    assert cost.step == found.seconds["balance"]
    assert cost.window == pytest.approx(100 * 0.02, rel=1e-3)
    assert cost.devices == pytest.approx(4 * 0.02 / found.step, rel=1e-3)
    assert cost.money == pytest.approx(2.5 * cost.devices)
    assert explained(study, tmp_path / "2").points[-1].costs["balance"].money is None


CHANGED = {
    "perfect balance": ({"slow": 0.01}, {"slow": 0.0}),
    "twice the link": ({"ring": 0.02, "latency": 0.001}, {"ring": 0.01, "latency": 0.0005}),
    "twice the loaders": ({"wait": 0.02}, {"wait": 0.01}),
    "no checkpoint": ({"checkpoint": 9.0}, {"checkpoint": 0.0}),
    "no validation": ({"validate": 9.0}, {"validate": 0.0}),
}


@pytest.mark.parametrize("change", CHANGED)
def test_a_change_gives_what_the_changed_machine_measures(change, tmp_path):
    now, then = CHANGED[change]
    noise = {"noise": 0.0}
    point = explained(a_study(batch=16, options=noise | now), tmp_path / "a").points[-1]
    (found,) = [each for each in point.what_if if each.change == change]
    curve, _ = measured(a_study(batch=16, options=noise | then), tmp_path / "b")
    truth = curve.points[-1]
    assert found.throughput == pytest.approx(truth.throughput.value, rel=1e-3)
    assert found.complete == pytest.approx(truth.time.value, rel=1e-3)
    assert found.saved == pytest.approx(sum(point.complete.values()) - truth.time.value, abs=2e-3)


def test_changes_are_ranked_and_small_ones_left_out(tmp_path):
    options = {"slow": 0.01, "ring": 0.02, "wait": 1e-5, "validate": 1e-4}
    found = explained(a_study(batch=16, steps=2000, options=options), tmp_path).points[-1].what_if
    assert [each.change for each in found] == ["twice the link", "perfect balance"]


def test_with_workers_twice_the_loaders_hide_behind_the_step():
    # The step is 4 + 2; making the batch took all of 6, so twice the loaders need 3.
    rows = {name: np.full((2, 3), value) for name, value in
            {"compute": 4.0, "input": 2.0, "sync": 0.0, "other": 0.0}.items()}  # fmt: skip
    slow = Ledger(**rows, samples=np.full((2, 3), 8), index=np.arange(3))
    assert Replay(slow, workers=2).with_double_loaders() == pytest.approx(np.full(3, 4.0))
    assert Replay(slow, workers=0).with_double_loaders() == pytest.approx(np.full(3, 5.0))
    starved = replace(slow, input=np.full((2, 3), 20.0))
    assert Replay(starved, workers=2).with_double_loaders() == pytest.approx(np.full(3, 12.0))


def a_breakdown(cause, **changes):
    """Return a point of 8 devices with the seconds of causes, and other facts changed."""
    seconds = dict.fromkeys((*CAUSES, "unexplained"), 0.0)
    seconds |= {name: changes.pop(name) for name in (*CAUSES,) if name in changes}
    point = {"devices": 8, "step": 0.025, "ideal": 0.018, "slowest": None}
    point |= {name: changes.pop(name) for name in (*point,) if name in changes}
    facts = {
        "point": Point(devices=8, global_batch=64),
        "spec": a_run(topology="1x8", framework="torch"),
        "step_at_baseline_pace": 0.018, "batch": 64.0, "baseline_batch": 64.0,
        "baseline_seconds": {}, "baseline_devices": 1,
    }  # fmt: skip
    return Breakdown(
        cause=cause, efficiency=None, factors={}, seconds=seconds, complete={}, grown={}, shares={},
        facts=PointFacts(**facts | changes), **point,
    )  # fmt: skip


def a_rank(number, host, behind):
    return RankTime(number, host, compute=0.0, input=0.0, sync=0.0, other=0.0, behind=behind)


def exchanging(record):
    """Return a record in which rank r has sent r + 1 KiB, counted in the step of index 2."""
    ranks = [
        replace(rank, lines=(*rank.lines, {"traffic": {"step": 2, "exchanged": {
            "all-reduce": {"calls": 1, "bytes": 4096, "sent": 1024 * (rank.rank + 1)}
        }}}))
        for rank in record.ranks
    ]  # fmt: skip
    return replace(record, ranks=tuple(ranks))


def test_a_point_tells_what_is_sent_and_which_share_of_a_step_waits(tmp_path):
    study = a_study(batch=64, epochs=None, steps=40, topologies=["1x1", "1x2"])
    curve, records = measured(study, tmp_path, exchanging)
    causes = explain(curve, records)
    alone, pair = curve.points
    assert alone.exposed is None and alone.left_out == "first 3 steps"
    assert pair.sent.value == 2048  # Of the rank that sends most.
    assert pair.exposed.value == pytest.approx(causes.points[1].exposed / causes.points[1].step)
    assert causes.points[1].traffic == {"all-reduce": 4096}
    exchange = exchange_sentence(causes.points[1])
    assert exchange.startswith("ddp: 4 KiB all-reduced per step and device; ")
    assert exchange in explanation_sections.sections([causes])[0].lines


@pytest.mark.parametrize(
    ("run", "kinds", "said"),
    [
        (
            {"strategy": "fsdp"},
            {"all-gather": 13 * 2**20, "reduce-scatter": 13 * 2**19},
            "fsdp: 13 MiB all-gathered and 6.5 MiB reduce-scattered per step and device; "
            "18 % of the step waits for communication",
        ),
        (
            {"strategy": "pipeline", "batch": 16},
            {"point-to-point": 2**20},
            "pipeline: 1 MiB sent point to point per step and device; "
            "18 % of the step waits for communication; "
            "the bubble of 2 stages and 8 micro-batches is 11 % of the step (computed)",
        ),
        ({"strategy": "ddp"}, None, None),
    ],
)
def test_a_strategy_names_what_it_exchanges(run, kinds, said):
    spec = a_run(topology="1x2", framework="torch", **run)
    assert communication_sentence(spec, kinds, 0.18) == said


@pytest.mark.parametrize(
    ("run", "share"),
    [
        ({"strategy": "pipeline"}, 3 / 19),
        ({"strategy": "pipeline", "pipeline_schedule": "interleaved"}, 3 / 35),
        ({"parallelism": {"pipeline": 2}, "micro_batches": 4}, 1 / 5),
        ({"strategy": "fsdp"}, None),
    ],
)
def test_the_bubble_of_a_pipeline_is_computed(run, share):
    assert a_run(topology="1x4", framework="torch", batch=16, **run).bubble == share


def test_what_moves_depends_on_the_way_of_splitting():
    spec = a_run(topology="1x2", framework="torch", strategy="pipeline", batch=16)
    told = a_breakdown("transfer", transfer=0.0041, spec=spec)
    assert "is waiting for other stages: the pipeline's bubble" in point_sentence(told)
    assert "micro_batches" in point_action(told)


def test_the_sentence_names_the_largest_cause_and_its_seconds():
    told = a_breakdown("transfer", transfer=0.0041, balance=0.0029)
    assert point_sentence(told) == (
        "On 8 devices a step takes 25 ms, and computation alone would take 18 ms: "
        "most of the rest (4.1 ms) is moving gradients between devices."
    )
    assert point_action(told).startswith("Try a larger batch per device")


@pytest.mark.parametrize(
    ("cause", "changes", "said"),
    [
        (None, {"transfer": 0.0004, "ideal": 0.0246}, "nothing else costs much"),
        ("input", {"input": 0.003, "transfer": 0.0025}, "the largest part of the rest"),
        (
            "input",
            {"input": 0.004, "baseline_seconds": {"input": 0.003}},
            "on 1 device it was 3 ms already, so without it the baseline would be "
            "faster too, and speed would rise more than efficiency",
        ),
        (
            "input",
            {"input": 0.002, "computation": -0.004, "ideal": 0.027},
            "2 ms of it waiting",
        ),
        ("input", {"devices": 1, "input": 0.007}, "On 1 device a step"),
    ],
)
def test_the_sentence_fits_the_numbers(cause, changes, said):
    assert said in point_sentence(a_breakdown(cause, **changes))


@pytest.mark.parametrize(
    ("cause", "changes", "said"),
    [
        ("input", {}, "`loaders_alone = true`"),
        ("input", {"loaders": LoaderRates(410, 980, 2)},
         "The loaders deliver 410 samples/s and you need 980: raise workers from 2 to 5."),
        ("input", {"loaders": LoaderRates(410, 980, 0)}, "from 0 to 3."),
        ("input", {"loaders": LoaderRates(2000, 980, 2)}, "during training"),
        ("computation", {"batch": 8.0}, "8 samples per step, and 64"),
        ("computation", {}, "threads per rank"),
        ("orchestration", {}, "logging"),
        ("balance", {"slowest": a_rank(3, "n1", 0.007)}, "rank 3 on n1"),
        ("balance", {"slowest": a_rank(3, "n1", 0.001)}, "take turns"),
        ("balance", {"slowest": a_rank(3, "n1", 0.007), "even_batches": False},
         "different numbers"),
    ],
)  # fmt: skip
def test_the_action_fits_the_cause(cause, changes, said):
    assert said in point_action(a_breakdown(cause, **{cause: 0.007}, **changes))


@pytest.mark.parametrize(("seconds", "cause"), [(0.007, "transfer"), (1e-5, None)])
def test_the_largest_cause_is_named_if_it_matters(seconds, cause, tmp_path):
    study = a_study(options=CLEAN | {"ring": seconds, "network": 0.0}, topologies=["1x1", "1x2"])
    assert explained(study, tmp_path).points[-1].cause == cause


def test_every_doubt_has_a_sentence():
    assert set(DOUBT_TEXT) == set(SEVERITIES)


def test_measured_loaders_reach_the_action(tmp_path):
    def with_loader(record):
        line = {"loader": {"rate": 100.0, "workers": 2}}
        ranks = tuple(replace(each, lines=(*each.lines, line)) for each in record.ranks)
        return replace(record, ranks=ranks)

    study = a_study(batch=8, options=CLEAN | {"wait": 0.05})
    action = point_action(explained(study, tmp_path, with_loader).points[-1])
    needed = 4 * 8 / Law.of(CLEAN).step(8, Topology(1, 4))
    assert f"deliver 400 samples/s and you need {needed:,.0f}: raise workers from 2 to" in action


times = some.floats(0, 10).map(lambda seconds: 0.0 if seconds < 1e-6 else seconds)


@some.composite
def ledgers(draw):
    """Some ranks and steps; computation is never nothing."""
    shape = draw(some.integers(1, 5)), draw(some.integers(1, 4))

    def rows(each):
        return np.array(
            draw(some.lists(each, min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
        ).reshape(shape)

    return Ledger(
        compute=rows(some.floats(1e-3, 10)),
        input=rows(times),
        sync=rows(times) if draw(some.booleans()) else None,
        other=rows(times),
        samples=rows(some.integers(1, 3)),
        index=np.arange(shape[1]),
    )


def a_window(found, step):
    steps = found.compute.shape[1]
    samples = max(1, int(found.samples.sum()))
    return Window(samples, step * steps, np.zeros(0), 0, steps, "nothing")


@settings(deadline=None)
@given(some.lists(ledgers(), min_size=1, max_size=3), ledgers(), some.floats(1e-3, 50))
def test_lines_sum_to_the_whole_whatever_was_recorded(repeats, base, step):
    chains = [build_chain(each, a_window(each, step), len(each.compute)) for each in repeats]
    origin = [build_chain(base, a_window(base, 1.0), len(base.compute))]
    per_sample = mean_compute_per_sample(origin)
    added = seconds_by_cause(chains, per_sample)
    ideal = np.mean([per_sample * each.samples for each in chains])
    assert total(added) + ideal == pytest.approx(step, rel=1e-9)
    assert added["orchestration"] >= 0 >= added["unexplained"]
    assert min(added["balance"], added["input"], added["transfer"] or 0.0) >= -1e-12
    rates = [each.samples / each.measured for each in (*chains, *origin)]
    efficiency = np.exp(np.mean(np.log(rates[:-1]))) / rates[-1]
    both = comparable_chains([*chains, *origin])
    found = relative_factors(
        factors_by_cause(both[:-1], per_sample), factors_by_cause(both[-1:], per_sample)
    )
    known = [each for each in found.values() if each is not None]
    assert prod(known) == pytest.approx(efficiency, rel=1e-9)
    assert len(known) == (5 if all(each.transfer_known for each in both) else 4)


@settings(deadline=None)
@given(ledgers(), some.integers(0, 3))
def test_a_changed_step_is_never_longer(found, workers):
    played = Replay(found, workers)
    for changed in (played.balanced(), played.with_double_link(), played.with_double_loaders()):
        assert (changed <= played.recorded() + 1e-9).all()


@pytest.fixture
def folder(tmp_path):
    """A played study's folder with two curves."""
    home = tmp_path / "runs"
    study = a_study(batch=16, options={"slow": 0.01}, vary={"options.wait": [0.0, 0.05]})
    write_json(home / "study.json", study.to_dict())
    list(play_all(study, home))
    return home


@pytest.fixture
def command(monkeypatch, capsys):
    def give(*words):
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["scalewise", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code or 0, *capsys.readouterr()

    return give


def test_the_command_prints_a_section_for_each_curve(folder, command):
    code, out, err = command("explain", folder, "--price", "2.50")
    assert (code, err) == (0, "")
    rows = [" ".join(line.split()) for line in out.splitlines()]
    assert "a study (options.wait 0.0)" in rows
    assert "a study (options.wait 0.05)" in rows
    assert "correct: not checked" in rows
    assert any(row.startswith("scales partly: efficiency 5") for row in rows)
    assert "cause ms per step s in the steady part devices per hour" in rows
    assert any(row.startswith("On 4 devices a step takes 31.2 ms, and computation") for row in rows)
    assert "4 ! 18.00 0 10.00 0 3.200 0 0 31.20" in rows
    assert any(row.startswith("perfect balance 21.20 ") for row in rows)


def test_the_guide_shows_what_is_printed(tmp_path, command):
    guide = (DOCS / "guides" / "explain.md").read_text()
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", guide, re.M | re.S)
    (text,) = [block for language, block in fenced if language == "toml"]
    study = StudySpec.from_dict(tomllib.loads(text))
    write_json(tmp_path / "study.json", study.to_dict())
    list(play_all(study, tmp_path))
    _, out, _ = command("explain", tmp_path, "--price", "2.50")
    blocks = [block for language, block in fenced if not language]
    assert len(blocks) == 3
    assert [block for block in blocks if block not in out] == []


def test_the_json_has_the_documented_shape(folder, command):
    code, out, _ = command("explain", folder, "--json")
    told = json.loads(out)
    assert code == 0
    assert told["schema"] == 1
    first, second = told["curves"]
    assert (first["study"], first["where"]) == ("a study", {"options.wait": 0.0})
    assert second["points"][0]["seconds"]["input"] == pytest.approx(0.05, rel=1e-3)
    curve = scalewise.measure(folder, where={"options.wait": 0.0})
    for point, measured_point in zip(first["points"], curve.points, strict=True):
        assert point["devices"] == measured_point.devices
        assert point["efficiency"] == measured_point.efficiency.value
        assert list(point["factors"]) == list(CAUSES)
        assert list(point["seconds"]) == [*CAUSES, "unexplained"]
        assert prod(point["factors"].values()) == pytest.approx(point["efficiency"], rel=1e-9)
        assert sum(point["complete"].values()) == pytest.approx(measured_point.time.value)
        assert "unexplained" in point["complete"]


@pytest.mark.parametrize("heading", ["### An explanation", "### A breakdown"])
def test_every_field_is_in_the_reference(heading, tmp_path):
    (curve,) = json.loads(explanation_sections.as_json([explained(a_study(), tmp_path)]))["curves"]
    names = curve if heading == "### An explanation" else curve["points"][0]
    page = DOCS / "reference" / "json.md"
    told = page.read_text().partition(heading)[2].partition("\n#")[0]
    assert [name for name in names if f"`{name}`" not in told] == []


def test_python_explains_one_curve(folder):
    found = scalewise.explain(folder, where={"options.wait": 0.05}, price="aws:p5.48xlarge")
    assert found.price == 6.88 and found.rate.currency == "USD"
    found = scalewise.explain(folder, where={"options.wait": 0.05}, price=3)
    assert found.where == {"options.wait": 0.05}
    assert found.points[-1].costs["balance"].money > 0
    with pytest.raises(SpecError, match="2 curves"):
        scalewise.explain(folder)


def test_a_csv_cannot_be_explained(tmp_path, command):
    path = tmp_path / "published.csv"
    path.write_text("devices,throughput\n1,240\n2,464\n")
    code, out, err = command("explain", path)
    assert (code, out) == (1, "")
    assert "published.csv holds results only" in err
    assert "hint: give the folder that `scalewise run` printed" in err
    assert len(results.curves([path])) == 1


def test_unfinished_runs_are_told(folder, command):
    next(folder.glob("*/outcome.json")).unlink()
    assert "! 1 of 6 runs are not finished" in command("explain", folder)[1]


def test_a_fault_that_was_looked_for_is_told(tmp_path):
    found = explained(a_study(), tmp_path)
    fault = Finding("drift", "correct", "Ranks differ by 3 %.", "Wrap the model.", devices=2)
    for correct, said in (
        ((), ["correct: no fault was seen"]),
        ((replace(fault, question=True),), ["is it correct? Ranks differ by 3 % (on 2 devices)."]),
    ):
        section = explanation_sections.sections([replace(found, correct=correct)])[0]
        assert list(section.lines[1 : 1 + len(said)]) == said  # After the sentence on its time.


@pytest.mark.parametrize("world", [1, 2, 3, 8])
@pytest.mark.parametrize("uneven", [0.0, 0.3, 1.0])
def test_uneven_batches_keep_their_total(world, uneven):
    shares = [Law(uneven=uneven).rank_samples(7, rank, world) for rank in range(world)]
    assert sum(shares) == 7 * world
    assert shares == sorted(shares)
    assert min(shares) >= 0
    if world > 1:
        assert shares[-1] == 7 + round(7 * uneven)


def test_a_step_takes_what_the_law_says_and_ends_for_all_together(tmp_path):
    options = {"slow": 0.01, "uneven": 0.5, "wait": 0.001}
    record = play(a_run(topology="1x4", batch=8, options=options), tmp_path)
    expected = Law.of(options).step(8, Topology(1, 4))
    assert expected == pytest.approx(0.002 + 0.001 + 12e-3 + 0.01 + 2e-3 * 1.5 + 2e-4)
    for rank in record.ranks:
        assert rank.steps.seconds == pytest.approx(expected, abs=1e-6)
    assert [int(rank.steps.samples[0]) for rank in record.ranks] == [4, 7, 9, 12]
    assert [rank.outline.seen for rank in record.ranks] == [80, 140, 180, 240]


def test_jitter_is_of_each_rank_by_itself_and_adds_no_compute_on_average(tmp_path):
    options = CLEAN | {"jitter": 0.1}
    record = play(a_run(topology="1x4", batch=8, steps=1000, options=options), tmp_path)
    compute = np.array(
        [r.steps.phases["forward"] + r.steps.phases["backward"] for r in record.ranks]
    )
    assert compute.mean() == pytest.approx(0.008, rel=0.01)
    assert compute.std() / compute.mean() == pytest.approx(0.1, rel=0.1)
    assert abs(np.corrcoef(compute) - np.eye(4)).max() < 0.15
    ends = np.array([rank.steps.seconds for rank in record.ranks])
    assert np.ptp(ends, axis=0).max() < 1e-6
    again = play(a_run(topology="1x4", batch=8, steps=1000, options=options), tmp_path / "again")
    np.testing.assert_array_equal(again.ranks[2].steps.seconds, record.ranks[2].steps.seconds)


def test_batches_cannot_be_more_than_wholly_uneven():
    with pytest.raises(SpecError, match=r"uneven must be a share from 0 to 1, got 1\.5"):
        Fake().check(a_run(options={"uneven": 1.5}))
