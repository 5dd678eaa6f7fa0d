"""The simulated machine, and whether measuring it gives its law back."""

import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from builders import a_run, a_study
from fake_study import held, law_throughput, play, play_all
from scalewise.analysis.measure import scaling_curves
from scalewise.errors import SpecError
from scalewise.frameworks.fake import Fake, Law
from scalewise.report.formats import as_json
from scalewise.spec import Topology

UP_TO_1024 = ["1x1", "1x2", "1x4", *(f"{2**k}x8" for k in range(8))]


def test_measuring_gives_the_law_back(tmp_path):
    study = a_study(batch=64, topologies=["1x1", "1x2", "1x4", "1x8", "2x8", "4x8"])
    (curve,) = json.loads(as_json(scaling_curves(study, play_all(study, tmp_path))))["curves"]
    for point, topology in zip(curve["points"], study.vary["topology"], strict=True):
        assert point["throughput"]["value"] == pytest.approx(
            law_throughput(study, topology), rel=1e-3
        )


def test_the_node_boundary_costs_what_the_law_says(tmp_path):
    options = {"ring": 0.0, "latency": 0.0, "network": 0.01, "compute": 1e-3, "host": 0.0}
    study = a_study(batch=10, options=options, topologies=["1x4", "2x4"])
    (curve,) = scaling_curves(study, play_all(study, tmp_path))
    assert curve.points[1].efficiency.value == pytest.approx(0.5, rel=1e-3)


def test_fixed_costs_are_the_parts_of_the_complete_time(tmp_path):
    options = {"launch": 7.0, "data": 3.0, "build": 2.0, "rendezvous": 1.0, "shutdown": 0.5}
    study = a_study(batch=64, epochs=3, options=options, topologies=["1x2"])
    (curve,) = scaling_curves(study, play_all(study, tmp_path))
    point = curve.points[0]
    parts = {name: part.value for name, part in point.complete.items()}
    law = Law.of(options)
    steps = 3 * (65536 // 128)
    assert parts == pytest.approx(
        {
            "launch": 7.0,
            "rendezvous": 2.0,
            "data": 3.0,
            "build": 2.0,
            "train": steps * law.step(64, Topology(1, 2)),
            "validate": 1.5,
            "shutdown": 0.5,
            "unexplained": 0.0,
        },
        abs=1e-3,
    )
    assert sum(parts.values()) == pytest.approx(point.time.value)


def test_simulated_nodes_are_hosts_of_their_own(tmp_path):
    record = play(a_run(topology="2x2"), tmp_path)
    assert [rank.host for rank in record.ranks] == ["node-0", "node-0", "node-1", "node-1"]


def test_nine_of_ten_intervals_hold_the_truth(tmp_path):
    one_to_five = [f"1x{devices}" for devices in range(1, 6)]
    inside = held(tmp_path / "runs", one_to_five, range(30))
    assert 0.85 <= sum(inside) / len(inside) <= 0.95


@pytest.mark.soak
def test_nine_of_ten_intervals_hold_the_truth_up_to_1024_devices(tmp_path, capsys):
    parts = [range(first, first + 10) for first in range(0, 200, 10)]
    folders = [tmp_path / str(part.start) for part in parts]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        found = list(pool.map(held, folders, [UP_TO_1024] * len(parts), parts))
    inside = [each for part in found for each in part]
    with capsys.disabled():
        print(f"{sum(inside) / len(inside):.1%} of {len(inside)} points lie in their interval")
    assert 0.85 <= sum(inside) / len(inside) <= 0.95


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"compute_": 1.0}, "compute_"),
        ({"compute": -1}, "-1"),
        ({"compute": True}, "True"),
        ({"compute": 0.0, "host": 0.0, "ring": 0.0}, "a step takes no time"),
    ],
)
def test_a_law_that_cannot_be_is_refused(options, says):
    with pytest.raises(SpecError, match=says):
        Fake().check(a_run(options=options))


def test_the_fake_machine_reads_only_synthetic_data():
    with pytest.raises(SpecError, match="photos"):
        Fake().check(a_run(data="photos"))
