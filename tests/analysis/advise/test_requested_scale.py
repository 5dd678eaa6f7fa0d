"""The scale that a proposal asks for: what it gives and costs, and what supports it."""

import pytest

from scalewise.analysis.advise.requested_scale import requested_scale
from scalewise.analysis.measure import curve_from_numbers
from scalewise.errors import SpecError

RATES = [(1, 100.0), (2, 190.0), (4, 360.0), (8, 660.0)]
TIMES = [(1, 3600.0), (2, 1900.0), (4, 1000.0), (8, 560.0)]


def a_curve(rates=RATES, times=TIMES, **settings):
    return curve_from_numbers(rates, times=times, name="known", **settings)


def test_a_measured_scale_has_the_measured_values():
    scale = requested_scale(a_curve(devices_per_node=4), 8)
    assert (scale.basis, scale.nodes, scale.largest) == ("measured", 2, 8)
    assert scale.throughput.value == 660 and scale.efficiency.value == pytest.approx(0.825)
    assert scale.time_efficiency == pytest.approx(3600 / 560 / 8)
    assert scale.device_hours.value == pytest.approx(8 * 560 / 3600)
    assert scale.node_hours.value == pytest.approx(2 * 560 / 3600)
    assert scale.baseline_device_hours == 1.0 and scale.supported


@pytest.mark.parametrize(("devices", "basis"), [(3, "between"), (16, "beyond")])
def test_another_scale_is_predicted_with_an_interval(devices, basis):
    scale = requested_scale(a_curve(), devices)
    assert scale.basis == basis
    ideal = 100.0 * devices
    assert scale.throughput.low < scale.throughput.value < ideal
    assert scale.efficiency.value == pytest.approx(scale.throughput.value / ideal)
    assert scale.efficiency.low < scale.efficiency.value < scale.efficiency.high
    assert scale.device_hours.value == pytest.approx(scale.time.value * devices / 3600)


def test_only_what_the_measurements_show_is_supported():
    on_nodes = a_curve(devices_per_node=4)
    assert requested_scale(on_nodes, 16).supported
    assert not requested_scale(on_nodes, 4096).supported  # Too far.
    assert not requested_scale(a_curve(devices_per_node=8), 16).supported  # No network was seen.


def test_throughputs_alone_give_no_hours():
    scale = requested_scale(a_curve(times=[]), 4)
    assert scale.time is scale.device_hours is scale.node_hours is scale.time_efficiency is None


def test_a_scale_has_at_least_one_device():
    with pytest.raises(SpecError, match="at least 1"):
        requested_scale(a_curve(), 0)
