"""What many devices would do, simulated from the record of one and the links they have."""

import json
import re
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from builders import a_run, a_study
from fake_study import a_sweep, play, play_all
from scalewise.analysis.measure import scaling_curves
from scalewise.analysis.simulate import (
    Contention,
    Cores,
    Link,
    Machine,
    Network,
    Simulation,
    Spread,
    Work,
    make_exchange,
    parse_link,
    parse_size,
    parse_sweep,
    simulate,
    simulate_curve,
)
from scalewise.analysis.simulate.simulation import _machine
from scalewise.analysis.simulate.units import BYTES_PER_SECOND, BYTES_PER_UNIT, UNITS_PER_SECOND
from scalewise.errors import NotEnoughData, SpecError
from scalewise.frameworks.fake import Law
from scalewise.report import simulation_sections as report
from scalewise.report.text.simulation import describe_note, describe_reach, simulation_sentences
from scalewise.spec import Topology

MB = 1e6

# Links and sizes as they are written.


@pytest.mark.parametrize(
    ("text", "latency", "bandwidth"),
    [
        ("25GB/s,20us", 2e-5, 25e9),
        ("20 µs, 25 GB/s", 2e-5, 25e9),
        ("200Gbit/s,5us", 5e-6, 25e9),
        ("1.5GiB/s,0ms", 0.0, 1.5 * 2**30),
        ("1e3kbit/s,1ns", 1e-9, 125e3),
    ],
)
def test_a_link_is_read_in_its_units(text, latency, bandwidth):
    found = parse_link(text)
    assert found.latency == pytest.approx(latency) and found.bandwidth == pytest.approx(bandwidth)


@given(
    some.floats(1e-3, 1e3), some.sampled_from(list(BYTES_PER_SECOND)), some.floats(0.0, 1e3),
    some.sampled_from(list(UNITS_PER_SECOND)),
)  # fmt: skip
def test_every_unit_means_what_it_says(rate, of_rate, wait, of_wait):
    for text in (f"{rate}{of_rate},{wait}{of_wait}", f"{wait}{of_wait},{rate}{of_rate}"):
        found = parse_link(text)
        assert found.bandwidth == pytest.approx(rate * BYTES_PER_SECOND[of_rate])
        assert found.latency == pytest.approx(wait / UNITS_PER_SECOND[of_wait])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("200,5us", "'200' has no unit"),
        ("200Gb/s,5us", "'200Gb/s' has the unknown unit 'Gb/s'"),
        ("-5GB/s,5us", "not a number from 0 up with its unit: '-5GB/s'"),
        ("fast", "not a number from 0 up with its unit: 'fast'"),
        ("", "not a number from 0 up with its unit: ''"),
        ("5GB/s", "a link has one bandwidth and one latency, got '5GB/s'"),
        ("5GB/s,5GB/s", "a link has one bandwidth and one latency"),
        ("5GB/s,5us,6us", "a link has one bandwidth and one latency"),
        ("0GB/s,5us", "the bandwidth of a link must be above 0"),
        ("1e999GB/s,5us", "bandwidth must be a number above 0, got inf"),
        ("5GB/s,1e999s", "a latency is 0 or more seconds, got inf"),
        ("nanGB/s,5us", "not a number from 0 up"),
    ],
)
def test_a_link_that_means_nothing_is_refused(text, problem):
    with pytest.raises(SpecError, match=problem) as refused:
        parse_link(text)
    assert refused.value.hint


@given(some.text(some.sampled_from("0123456789.eE+-,/ GMkbBits usmµ"), max_size=20))
def test_whatever_is_written_is_a_link_or_refused(text):
    with suppress(SpecError):
        found = parse_link(text)
        assert found.bandwidth > 0 and found.latency >= 0


def test_sizes_have_units_too():
    assert parse_size("100MB") == 1e8 and parse_size("1.5 GiB") == 1.5 * 2**30
    assert set(BYTES_PER_UNIT) == {
        unit.removesuffix("/s") for unit in BYTES_PER_SECOND if "bit" not in unit
    }
    for text, problem in (("100", "has no unit"), ("0MB", "above 0"), ("-1MB", "not a number")):
        with pytest.raises(SpecError, match=problem):
            parse_size(text)


# Simulated from one run.


def simulated(folder, at, *, exchange=None, per_node=8, gradients=100 * MB, **changes):
    """Play a fake study in this process and simulate from it."""
    batch = {} if "global_batch" in changes else {"batch": 32}
    study = a_study(**{"steps": 40, "topologies": ["1x1"]} | batch | changes)
    records = list(play_all(study, folder))
    (curve,) = scaling_curves(study, records)
    links = exchange or Network(Link(5e-6, 200e9), Link(2e-5, 25e9), "quickest")
    return simulate_curve(curve, records, at, links, per_node=per_node, gradients=gradients)


def test_the_fake_machines_law_comes_out_of_one_run(tmp_path):
    law = Law.of({"latency": 0.0})
    exact = Network(Link(0.0, 100 / law.ring), Link(0.0, 100 / law.network), "hierarchical")
    found = simulated(
        tmp_path, [1, 8, 16, 16_384], exchange=exact, gradients=100, options={"latency": 0.0}
    )
    for point in found.points:
        assert point.step == pytest.approx(law.step(32, point.topology))
        assert found.efficiency(point) == pytest.approx(law.step(32, Topology(1, 1)) / point.step)
    assert [str(point.topology) for point in found.points] == ["1x1", "1x8", "2x8", "2048x8"]


def test_more_devices_have_longer_steps_up_to_16384(tmp_path):
    found = simulated(tmp_path, [8, 16_384], gradients=10_000 * MB)
    assert found.points[-1].step > found.points[0].step > found.one_device_step.step


def test_larger_scales_that_were_measured_are_held_against_it(tmp_path):
    law = {"latency": 0.0}
    ring = Law.of(law).ring
    twice = Network(Link(0.0, 2 * 100 / ring), None)
    found = simulated(
        tmp_path, [4, 8], exchange=twice, gradients=100, options=law,
        topologies=["1x1", "1x2", "1x4"], repeats=3,
    )  # fmt: skip
    step = Law.of(law).step
    for check in found.checks:
        real = step(32, check.topology)
        ideal = step(32, Topology(1, 1)) + (real - step(32, Topology(1, 1))) / 2
        assert check.factor == pytest.approx(real / ideal)
    assert [str(check.topology) for check in found.checks] == ["1x2", "1x4"]
    inside, beyond = found.points
    assert found.corrected_throughput(inside) is None  # It was measured.
    assert found.corrected_throughput(beyond) == pytest.approx(beyond.throughput / found.factor)
    told = simulation_sentences(found)[-1]
    assert re.search(r"Measured steps took 1\.0\d × \(2 devices\), 1\.0\d × \(4 devices\)", told)
    assert "the error grows with the number of devices" in told
    assert "These factors are no interval: a prediction from the curve gives one" in told


def test_what_cannot_be_held_against_it_is_said(tmp_path):
    near = Network(Link(5e-6, 200e9), None)
    found = simulated(tmp_path, [2], exchange=near, topologies=["1x1", "2x2"])
    assert not found.checks and found.factor is None
    assert "2x2 was measured, but cannot be simulated" in describe_note(found.notes[-1])


def test_without_a_larger_run_there_is_no_interval_and_it_says_so(tmp_path):
    found = simulated(tmp_path, [64])
    assert found.factor is None and found.corrected_throughput(found.points[0]) is None
    assert simulation_sentences(found)[-1].startswith(
        "There is no interval: this folder has no larger run"
    )
    assert json.loads(report.as_json(found))["interval"] is None


def test_the_sentences_carry_the_arithmetic(tmp_path):
    found = simulated(tmp_path, [64])
    told = "\n".join(simulation_sentences(found))
    assert "on 1x1: a step of 34 ms, 100 MB of gradients in 5 buckets, strategy ddp" in told
    assert "200 GB/s and 5 µs inside a node, 25 GB/s and 20 µs between nodes" in told
    (line,) = re.findall(r"^64 devices \(8x8\): .*$", told, re.M)
    own, *waits, whole, alone = map(float, re.findall(r"([\d.]+) ms", line))
    assert own + sum(waits) == pytest.approx(whole, rel=1e-3)
    assert float(re.search(r"efficiency ([\d.]+) %", line)[1]) == pytest.approx(
        100 * alone / whole, abs=0.1
    )


def test_where_much_hangs_on_the_slowest_rank_it_says_what_that_is_from(tmp_path):
    even = simulated(tmp_path / "even", [64])
    assert not any("vary as much" in line for line in simulation_sentences(even))
    (line,) = [
        line
        for line in simulation_sentences(
            simulated(tmp_path / "noisy", [64], options={"noise": 0.2})
        )
        if "vary as much" in line
    ]
    assert re.search(r"vary as much as the \d+ recorded steps", line)
    assert line.endswith("underestimated if the run was short.")


def test_of_repeats_the_middle_one_counts(tmp_path):
    study = a_study(topologies=["1x1", "1x2"], repeats=3, steps=40, options={"drift": 0.2})
    records = list(play_all(study, tmp_path))
    rates = {each.spec.id: each.ranks[0].steps.seconds.mean() for each in records[:3]}
    (curve,) = scaling_curves(study, records)
    links = Network(Link(5e-6, 200e9))
    found = simulate_curve(curve, records, [2], links, per_node=8, gradients=100 * MB)
    assert rates[found.run] == sorted(rates.values())[1]


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf"), "soon", None])
def test_a_sweep_of_impossible_times_is_refused(seconds):
    odd = a_sweep()
    odd["rows"][2]["seconds"]["value"] = seconds
    with pytest.raises(SpecError, match="this is no sweep of collectives") as refused:
        parse_sweep(odd)
    assert "doctor --collectives" in refused.value.hint


def test_gloo_goes_in_a_ring_and_nccl_the_quickest_way():
    near = parse_link("1GB/s,5us")
    assert make_exchange([parse_sweep(a_sweep())]).network.algorithm == "ring"
    assert make_exchange([parse_sweep(a_sweep(backend="nccl"))]).network.algorithm == "quickest"
    assert make_exchange(inside=near).algorithm == "quickest"
    assert make_exchange(inside=near, algorithm="tree").algorithm == "tree"


def test_a_given_link_stands_beside_a_sweep():
    far = parse_link("1Gbit/s,1ms")
    found = make_exchange([parse_sweep(a_sweep())], between=far)
    assert found.network.between == far
    assert found.network.inside.bandwidth == pytest.approx(1e9)
    work = Work(forward=1.0, backward=2.0)
    (step,) = simulate(work, [Topology(2, 2)], Machine(exchange=found, sharing={2: 1.0}))
    assert describe_reach(step) == (
        "communication was timed on 1x2, and the link between nodes was given"
    )
    assert make_exchange([parse_sweep(a_sweep())], inside=far).network.inside == far


def test_nodes_of_a_sweep_are_as_large_as_it_found_them(tmp_path):
    links = make_exchange(
        [parse_sweep(a_sweep(place)) for place in (Topology(1, 2), Topology(2, 2))]
    )
    found = simulated(tmp_path, [2, 8], exchange=links, per_node=None)
    assert [str(point.topology) for point in found.points] == ["1x2", "4x2"]
    one = make_exchange([parse_sweep(a_sweep(Topology(1, 4)))])
    (point,) = simulated(tmp_path / "one", [4], exchange=one, per_node=None).points
    assert str(point.topology) == "1x4"


def test_on_processors_an_exchange_takes_cores(tmp_path):
    record = play(a_run(steps=40), tmp_path)
    engine = {"devices": ["cpu"], "threads": 1}
    here = replace(record, environment={"cores": 4, "engine": engine})
    links, one = make_exchange([parse_sweep(a_sweep())]), Link(1e-5, 1e9)
    crowded = _machine(here, links, Spread()).contention
    assert isinstance(crowded, Cores) and (crowded.count, crowded.busy_cores) == (
        4,
        pytest.approx(0.5),
    )
    for other, way in (
        (replace(record, environment={"cores": 4, "engine": {**engine, "threads": 2}}), links),
        (replace(record, environment={}), links),
        (here, Network(one)),
    ):
        assert _machine(other, way, Spread()).contention == Contention()


def watched(record, **facts):
    """Add what the watcher of a user's own script notes of its model."""
    ranks = [replace(rank, lines=(*rank.lines, {"facts": facts})) for rank in record.ranks]
    return replace(record, ranks=tuple(ranks))


def test_a_users_own_script_tells_its_gradients_by_its_parameters(tmp_path):
    study = a_study(topologies=["1x1"], steps=40)
    records = list(play_all(study, tmp_path))
    (curve,) = scaling_curves(study, records)
    links = make_exchange(inside=parse_link("1GB/s,5us"))

    def found(**facts) -> Simulation:
        return simulate_curve(curve, [watched(records[0], **facts)], [2], links, per_node=8)

    assert found(parameters=1000, dtype="float32").work.size == 4000
    assert found(parameters=1000, dtype="bfloat16").work.size == 2000
    for unknown in ({}, {"parameters": 10}, {"parameters": 10, "dtype": "float32", "split": True}):
        with pytest.raises(NotEnoughData, match="does not record how many bytes of gradients"):
            found(**unknown)
    sharded = {"parameters": 10, "dtype": "float32", "sharded": True}
    with pytest.raises(NotEnoughData):
        found(**sharded)
    own = simulate_curve(
        curve, [watched(records[0], **sharded)], [2], links, per_node=8, gradients=40.0
    )
    assert own.strategy == "fsdp"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"at": [12]}, "12 devices do not fill nodes of 8"),
        ({"at": [0]}, "a number of devices must be a whole number from 1"),
        ({"at": [64], "per_node": None}, "devices per node are unknown, so 64"),
        ({"at": [8], "scaling": "strong", "global_batch": 32}, "keeps the global batch"),
    ],
)
def test_what_cannot_be_simulated_is_refused(tmp_path, changes, problem):
    with pytest.raises(SpecError, match=problem) as refused:
        simulated(tmp_path, **changes)
    assert refused.value.hint


def test_a_run_that_holds_only_a_part_of_its_model_is_refused(tmp_path):
    record = play(a_run(steps=40), tmp_path)
    (curve,) = scaling_curves(a_study(topologies=["1x1"]), [record])
    for strategy, topology in (("fsdp", "1x4"), ("pipeline", "1x1"), ("hsdp", "1x2")):
        spec = a_run(framework="torch", workload="gpt", strategy=strategy, topology=topology)
        with pytest.raises(SpecError, match="computes a whole model"):
            simulate_curve(
                curve, [replace(record, spec=spec)], [2],
                make_exchange(inside=parse_link("1GB/s,5us")), per_node=8, gradients=1e6,
            )  # fmt: skip


def test_links_that_are_not_known_are_asked_for():
    with pytest.raises(SpecError, match="a simulation needs the links") as refused:
        make_exchange()
    assert "give sweeps= from" in refused.value.hint and "or inside=" in refused.value.hint
    with pytest.raises(SpecError, match="the link inside a node is not known"):
        make_exchange(between=parse_link("1GB/s,5us"), per_node=8)
    lonely = make_exchange(between=parse_link("1GB/s,5us"), per_node=1)
    assert lonely.seconds("all-reduce", 100, Topology(4, 1)) > 0
