"""Energy: once per device and host, over the complete time, or not at all; and what it advises."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import scalewise
from builders import a_study
from fake_study import play, play_all
from scalewise.analysis.cost.energy_use import power_of
from scalewise.analysis.measure import curve_from_csv, curve_from_numbers, scaling_curves
from scalewise.analysis.measure.energy import Energy, run_energy
from scalewise.analysis.measure.host_load import overload_doubts
from scalewise.errors import SpecError
from scalewise.frameworks.fake import Law
from scalewise.record.node_samples import DeviceRecord, NodeRecord, node_samples_by_folder
from scalewise.report import advice_sections, formats
from scalewise.report.text.advice import power_sentence
from scalewise.report.text.doubts import warning_text
from scalewise.spec import Topology

LAW = {"watts": 400, "idle_watts": 90, "launch": 20.0}
TOPOLOGIES = ["1x1", "1x2", "1x4", "2x4"]


def a_study_of(options=LAW, **changes):
    return a_study(
        batch=64, epochs=3, scaling="weak", options=options, topologies=TOPOLOGIES, **changes
    )


def measured(study, folder):
    records = list(play_all(study, folder))
    (curve,) = scaling_curves(study, records, node_samples_by_folder(records))
    return curve


@pytest.fixture(scope="module")
def curve(tmp_path_factory):
    return measured(a_study_of(), tmp_path_factory.mktemp("energy"))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Return the record of a fake run on two devices, without samples."""
    (run,) = a_study(topologies=["1x2"]).runs()
    return play(run, tmp_path_factory.mktemp("alone"))


def joules(topology):
    """Return what the law says: computing and waiting, each at its watts."""
    where, law = Topology.parse(topology), Law.of(LAW)
    world = where.world
    steps = 3 * 65536 // (64 * world)
    computing = steps * law.work_seconds(64, 0, world)
    whole = 20 + 0.5 * (1 + np.log2(world)) + 2 + 3 + steps * law.step(64, where) + 3 / world + 0.5
    return world * (400 * computing + 90 * (whole - computing)), whole


@pytest.mark.parametrize(("place", "topology"), [*enumerate(TOPOLOGIES)])
def test_the_fake_machine_takes_what_its_law_says(curve, place, topology):
    point, (truth, seconds) = curve.points[place], joules(topology)
    assert point.energy.value == pytest.approx(truth, rel=1e-6)
    assert point.power.value == pytest.approx(truth / seconds / point.devices, rel=1e-6)
    assert (point.energy_covers, point.energy_hosts) == ("accelerators", None)


def test_the_card_shows_what_is_measured(curve):
    assert [round(point.energy.value / 3600, 2) for point in curve.points] == [
        23.25, 24.09, 25.55, 28.66,
    ]  # fmt: skip
    assert [round(point.power.value, 1) for point in curve.points] == [361.2, 327.0, 284.2, 230.2]
    assert "E = 17.46 Wh + 90 W × device-hours" in power_sentence(power_of(curve))


def test_the_table_and_the_json_show_energy_where_it_is_known(curve, alone):
    told = formats.text([curve])
    assert "energy is that of the accelerators alone, without their hosts" in told
    assert "Wh" in told and "W per device" in told and "hosts' processors" not in told
    point = json.loads(formats.as_json([curve]))["curves"][0]["points"][0]
    assert point["energy"]["value"] == pytest.approx(joules("1x1")[0], rel=1e-6)
    (without,) = scaling_curves(a_study(topologies=["1x2"]), [alone])
    assert "Energy" not in formats.text([without]) and without.points[0].energy is None


def test_repeats_give_an_interval(tmp_path):
    study = a_study_of({**LAW, "drift": 0.05}, repeats=3)
    point = measured(study, tmp_path).points[0]
    assert point.energy.low < point.energy.value < point.energy.high
    assert point.energy.count == point.power.count == 3


def a_device(index, watts, at, own=1.0, **changes):
    """Return a device that draws so much all the time."""
    nothing = np.full(len(at), np.nan)
    values = dict.fromkeys(("utilisation", "memory", "power", "clock", "temperature"), nothing)
    facts = dict.fromkeys(("name", "uuid", "driver", "memory_total", "power_limit"))
    own_now = np.full(len(at), np.nan if own is None else own)
    return DeviceRecord(
        index=index, **facts, **values, energy=7e6 + watts * (at - at[0]), own=own_now,
        foreign=nothing, **changes,
    )  # fmt: skip


def a_node(
    record, devices=(), *, host="node-0", before=1.0, after=1.0, processors=None, ahead=None
):
    """Return a machine that was sampled from before a run until after it, once a second."""
    begin, end = record.started + (ahead or 0) - before, record.ended + (ahead or 0) + after
    at = np.linspace(begin, end, 2 + int(end - begin))
    nothing = np.full(len(at), np.nan)
    counter = nothing if processors is None else processors * (at - at[0])
    return NodeRecord(
        host=host, interval=1.0, cores=8, memory_total=None, at=at, cpu=nothing, own=nothing,
        memory=nothing, energy=counter, spent=nothing, ahead=ahead,
        devices=tuple(a_device(k, watts, at, own) for k, (watts, own) in enumerate(devices)),
    )  # fmt: skip


def seconds(record):
    return record.ended - record.started


@pytest.mark.parametrize(
    ("devices", "watts"),
    [
        ([(300, 1), (200, 1)], 500),
        ([(300, 2)], 300),  # Both ranks on one device: counted once.
        ([(300, 1), (200, 1), (50, 0), (60, 0)], 500),  # Two were left alone.
        ([(300, None), (200, None)], 500),  # Hidden, but as many as the run has.
        ([(300, None), (200, None), (50, None)], None),  # Whose is the third?
        ([(0, 0), (0, 0)], None),  # On none of them was anything of the run.
        ([], None),
    ],
)
def test_devices_are_counted_once_and_only_the_runs_own(alone, devices, watts):
    found = run_energy(alone, [a_node(alone, devices, processors=70)])
    assert found.hosts == pytest.approx(70 * seconds(alone))
    assert found.total == (watts and pytest.approx(watts * seconds(alone)))
    assert found.covers == (watts and "accelerators")


def test_ranks_on_processors_take_what_the_processors_take(alone):
    ranks = tuple(replace(each, lines=(*each.lines, {"device": "cpu"})) for each in alone.ranks)
    record = replace(alone, ranks=ranks)
    found = run_energy(record, [a_node(record, [(300, 0)], processors=70)])
    assert found == Energy(found.hosts, found.hosts, "processors")
    assert found.total == pytest.approx(70 * seconds(record))
    assert run_energy(record, [a_node(record, [(300, 0)])]) == Energy()


@pytest.mark.parametrize(
    ("edges", "known"),
    [
        ({}, True),
        ({"before": -0.05}, True),
        ({"after": -0.05}, True),
        ({"before": -0.06, "after": -0.06}, False),
        ({"before": -0.5}, False),
        ({"ahead": 3600.0}, True),
    ],
)
def test_a_little_may_be_missing_at_the_edges(alone, edges, known):
    edges = {k: v * seconds(alone) if v < 0 else v for k, v in edges.items()}
    found = run_energy(alone, [a_node(alone, [(300, 1), (200, 1)], **edges)])
    assert found.total == (pytest.approx(500 * seconds(alone)) if known else None)


def test_what_is_not_whole_is_not_known(alone):
    node = a_node(alone, [(300, 1), (200, 1)])
    counter = node.devices[0].energy.copy()
    counter[len(counter) // 2 :] -= 1e5
    back = replace(node, devices=(replace(node.devices[0], energy=counter), node.devices[1]))
    mute = replace(node.devices[0], energy=np.full(len(counter), np.nan))
    nobody = replace(node, devices=(mute, node.devices[1]))
    empty = replace(node, at=node.at[:0], energy=node.at[:0], devices=())
    for nodes in ([], [replace(node, host="elsewhere")], [back], [nobody], [empty]):
        assert run_energy(alone, nodes).total is None


def test_repeats_that_count_different_things_are_not_averaged(alone):
    study = a_study(topologies=["1x2"])
    again = replace(alone, folder=alone.folder / "again")
    seen = {alone.folder: [a_node(alone, [(300, 1), (200, 1)])]}
    (curve,) = scaling_curves(study, [alone, again], seen)
    assert curve.points[0].energy is None
    (curve,) = scaling_curves(study, [alone], seen)
    assert curve.points[0].energy.value == pytest.approx(500 * seconds(alone))


@pytest.mark.parametrize(
    "lines",
    [
        "",
        '{"attempt":1,"schema":1,"ho',
        '{"attempt":1,"schema":1}',
        '{"attempt":1,"schema":1,"host":"node-0","interval":1,"devices":[3]}',
        '{"attempt":1,"schema":1,"host":"node-0","interval":1,"devices":[{"index":0}]}',
        '{"attempt":1,"schema":1,"host":"node-0","interval":1}\n{"attempt":1,"at":"noon"}\n'
        '{"attempt":1,"at":3}',
        '{"attempt":1,"schema":1,"host":"node-0","interval":1}\n{"attempt":1,"at":0,"energy":"x"}',
        '{"attempt":1,"schema":"new"}',
        '{"attempt":1,"schema":99,"host":"node-0","interval":1}',
        "\0\0\0",
    ],
)
def test_a_damaged_node_file_costs_the_energy_and_nothing_else(alone, lines, tmp_path):
    record = replace(alone, folder=tmp_path)
    (tmp_path / "node-node-0.jsonl").write_text(lines)
    study, nodes = a_study(topologies=["1x2"]), node_samples_by_folder([record])
    (curve,) = scaling_curves(study, [record], nodes)
    assert curve.points[0].energy is None and curve.points[0].time


def test_a_table_may_have_energy():
    text = "devices,time,energy_kwh\n1,3600,0.4\n2,2000,\n4,1200,0.5\n"
    curve = curve_from_csv(text, name="a")
    assert [point.energy and point.energy.value for point in curve.points] == [1.44e6, None, 1.8e6]
    assert curve.points[2].power.value == pytest.approx(1.8e6 / 4800)
    assert "energy is as the table gives it" in formats.text([curve])
    found = scalewise.advise(curve, "energy=1kWh")
    assert found.scales[1].energy and found.scales[1].energy.value > 0.4 * 3.6e6


@pytest.mark.parametrize("cell", ["-1", "nan", "much"])
def test_an_energy_that_is_none_is_refused(cell):
    with pytest.raises(SpecError, match="energy_kwh must be a number above 0"):
        curve_from_csv(f"devices,time,energy_kwh\n1,2,{cell}\n", name="a")


@pytest.mark.parametrize(("limit", "chosen"), [("24Wh", 1), ("26Wh", 4), ("30Wh", 8), ("1kWh", 8)])
def test_advice_keeps_within_energy(curve, limit, chosen):
    found = scalewise.advise(curve, f"energy={limit}")
    assert found.chosen.devices == chosen
    assert found.chosen.chance > 0.5
    assert " Wh," in found.reason
    assert power_sentence(power_of(curve)) in found.sentences


def test_predicted_energy_holds_the_truth(curve):
    found = {scale.devices: scale for scale in scalewise.advise(curve, "time", up_to=32).scales}
    for devices in (16, 32):
        truth, _ = joules(f"{devices // 4}x4")
        assert found[devices].energy.low < truth < found[devices].energy.high
        assert found[devices].energy.value == pytest.approx(truth, rel=0.1)


def test_balanced_weighs_energy_where_it_is_known_and_says_so(curve):
    by_energy = scalewise.advise(curve, "balanced", up_to=32)
    assert "the least energy × time" in by_energy.reason
    points = tuple(replace(point, energy=None, power=None) for point in curve.points)
    without = scalewise.advise(replace(curve, points=points), "balanced", up_to=32)
    assert "the least device-hours × time (energy is unknown)" in without.reason
    # Waiting devices draw less than they cost.
    assert by_energy.beyond.scale.devices > without.closest.devices and not without.beyond


TIMES = curve_from_numbers(times=[(1, 3600.0), (2, 2000.0), (4, 1200.0)])


def test_watts_and_devices_stand_in_where_nothing_was_measured():
    given = scalewise.advise(TIMES, "energy=1kWh", watts=700)
    assert given.scales[0].energy.value == pytest.approx(700 * 3600)
    assert "700 W, as given" in str(given)
    bound = scalewise.advise(TIMES, "energy=1kWh", device="a100")
    assert bound.power.device and "× 400 W" in str(bound) and "a100-40gb" in str(bound)
    told = json.loads(advice_sections.as_json(bound))
    assert told["power"]["watts"] == 400 and told["chosen"]["energy"]["value"] > 0
    (section,) = advice_sections.sections(bound)
    assert "Wh" in section.tables[0].header


@pytest.mark.parametrize(
    ("given", "problem", "hint"),
    [
        ({}, "no energy was measured", "watts=700"),
        ({"watts": 700, "device": "h100"}, "exclude each other", "keep one of them"),
        ({"watts": 0}, "watts must be a number above 0, got 0", "700"),
        ({"watts": float("nan")}, "watts must be a number above 0", "700"),
        ({"watts": "many"}, "watts must be a number above 0", "700"),
        ({"device": "h100-sxn"}, "no device named 'h100-sxn' is listed", "did you mean"),
        ({"device": ""}, "no device named ''", "catalog devices"),
        ({"device": 3}, "device must be a name, got 3", ""),
        ({"device": "tpu-v5e"}, "the power of tpu-v5e is not known", "watts=700"),
    ],
)
def test_nonsense_is_refused_with_a_hint(given, problem, hint):
    with pytest.raises(SpecError) as refused:
        scalewise.advise(TIMES, "energy=1kWh", **given)
    assert problem in str(refused.value)
    assert hint in refused.value.hint


def test_watts_do_not_stand_in_for_what_was_measured(curve):
    with pytest.raises(SpecError, match="the energy of a study was measured"):
        scalewise.advise(curve, "energy=1kWh", watts=700)


def test_without_times_there_is_no_energy():
    rates = curve_from_numbers([(1, 100.0), (2, 180.0)])
    with pytest.raises(SpecError, match="energy=1kWh cannot be checked: there is no time"):
        scalewise.advise(rates, "energy=1kWh", watts=700)


def with_energy(once, watts, times):
    points = [(n, (once + watts * n * t) / 3.6e6) for n, t in times]
    return curve_from_numbers(times=times, energies=points)


@settings(max_examples=30, deadline=None)
@given(some.floats(0, 1e7), some.floats(1, 1000), some.floats(0.05, 0.9))
def test_the_law_of_energy_is_recovered(once, watts, fixed):
    times = [(n, 1000 * (fixed + (1 - fixed) / n)) for n in (1, 2, 4, 8)]
    found = power_of(with_energy(once, watts, times))
    spent = 16 * 1000 * (fixed + (1 - fixed) / 16)
    assert found.once + found.watts * spent == pytest.approx(once + watts * spent, rel=1e-3)


def test_one_measured_scale_gives_its_watts():
    curve = scalewise.curve(times=[(1, 100.0), (2, 60.0)], energies=[(2, 0.01)])
    found = power_of(curve)
    assert (found.once, found.spread) == (0, 0) and found.watts == pytest.approx(300)
    assert "from 1 measured scale (300 W per device on 2)" in power_sentence(found)


def test_unequal_work_is_not_shared():
    curve = with_energy(1e6, 100, [(1, 100.0), (2, 60.0), (4, 40.0)])
    points = [replace(p, samples=1000 * p.devices) for p in curve.points]
    found = power_of(replace(curve, points=tuple(points)))
    assert found.once == 0
    assert found.watts == pytest.approx(curve.points[-1].power.value)


@pytest.mark.parametrize(
    ("cpu", "own", "samples", "told"),
    [
        (1.0, 0.11, 9, "other processes used 89 % of its CPU"),
        (1.0, 0.95, 9, ""),  # All its own.
        (0.6, 0.1, 9, ""),  # There was room for both.
        (np.nan, np.nan, 9, ""),
        (1.0, 0.11, 2, ""),
    ],
)
def test_a_machine_that_others_filled_is_told(alone, cpu, own, samples, told):
    trains = [span for rank in alone.ranks for span in rank.spans if span.name == "train"]
    at = np.linspace(trains[0].start, trains[0].end, samples + 1)[1:]
    node = replace(a_node(alone), at=at, cpu=np.full(samples, cpu), own=np.full(samples, own))
    said = overload_doubts([alone, alone], {alone.folder: [node]})
    assert len(said) == bool(told) and told in "".join(map(warning_text, said))
    assert overload_doubts([alone], {}) == []
