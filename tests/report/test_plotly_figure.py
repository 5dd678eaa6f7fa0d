"""Figures as Plotly takes them: valid by its own rules, names as text, numbers in hover texts."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from scalewise.report.figures import Axis, Bars, Figure, HeatMap, Line, Mark
from scalewise.report.figures.matplotlib_style import line_style
from scalewise.report.figures.plotly_axes import plotly_text
from scalewise.report.figures.plotly_figure import plotly_figure
from scalewise.report.figures.svg_preview import svg_preview

HOSTILE = '<a href="javascript:alert(1)">x</a> <img src=x onerror=alert(2)> <b>&amp;'
DEVICES = Axis("devices", log=True, counts=True)


def a_figure(name="a curve"):
    measured = Line(name, (1, 2, 4), (240.0, 464.0, 935.0), (235.0, None, 920.0),
                    (245.0, None, 950.0))  # fmt: skip
    predicted = Line(f"{name}: predicted", (4, 8), (935.0, 1800.0), (935.0, 1500.0),
                     (935.0, 2000.0), role="predicted")  # fmt: skip
    ideal = Line("ideal", (1, 8), (240.0, 1920.0), role="ideal")
    return Figure(
        "throughput", "Throughput", DEVICES, Axis("samples per second", log=True),
        (measured, ideal, predicted), marks=(Mark(4, 935.0, "use 4 devices"),),
    )  # fmt: skip


def other_figures(name="a curve"):
    categories = Axis("devices", categories=("1", "2"))
    grouped = Axis("devices", categories=("1", "2", "1"), groups=(name, name, "b"))
    share = Axis("of the time", percent=True)
    yield Figure("causes", name, categories, share, bars=(Bars(name, (0.5, 1.0), "#0072B2"),))
    yield Figure("time", name, grouped, share, bars=(Bars(name, (0.5, 1.0, 0.2), "#000000"),))
    heat = HeatMap(((0.0, None), (1.0, 31.0)), "% slower", middle=0.0, least_reach=10.0)
    times = Axis("seconds", categories=("0", "0"))
    yield Figure("ranks", name, times, Axis("rank", categories=("0", name)), heat=heat)
    second = Line(name, (1, 2), (0.5, 0.7), on_right=True, role="second", labels=(name, ""))
    lines = (Line("l", (1, 2), (0.0, 3.0)), second)
    yield Figure("both", name, DEVICES, Axis("y"), lines, right=Axis("share", percent=True))


@pytest.mark.parametrize("name", ["a curve", HOSTILE])
def test_plotly_accepts_every_kind_of_figure(name):
    graph_objects = pytest.importorskip("plotly.graph_objects")
    for figure in (a_figure(name), *other_figures(name)):
        text = json.dumps(plotly_figure(figure))
        while "var(--" in text:
            before, _, after = text.partition("var(--")
            text = f"{before}#abcdef{after.partition(')')[2]}"
        graph_objects.Figure(json.loads(text))


def test_hovering_says_the_value_and_its_interval():
    data = plotly_figure(a_figure())["data"]
    measured = next(trace for trace in data if trace["meta"]["role"] == "measured")
    assert measured["hovertext"][2] == (
        "<b>a curve</b><br>4 devices: 935.0 samples per second<br>90 %: 920.0 to 950.0"
    )
    assert "90 %" not in measured["hovertext"][1]
    assert measured["error_y"]["array"] == [5.0, 0, 15.0]


def test_a_prediction_has_a_band_that_its_switch_hides_too():
    data = plotly_figure(a_figure())["data"]
    band = next(trace for trace in data if trace["meta"]["role"] == "band")
    assert band["meta"]["series"] == "a curve: predicted"
    assert band["y"] == [935.0, 2000.0, 1500.0, 935.0]


def test_the_mark_is_text_beside_its_point():
    mark = plotly_figure(a_figure())["data"][-1]
    assert (mark["x"], mark["y"], mark["text"]) == ([4], [935.0], ["<b>use 4 devices</b>"])


def test_names_are_text_and_cut():
    shown = json.dumps([plotly_figure(figure) for figure in other_figures(HOSTILE)])
    assert "<a" not in shown and "<img" not in shown and "&lt;a href" in shown
    assert len(plotly_text("x" * 5000)) == 60


def test_long_names_keep_their_ends_and_a_switch_each():
    figures = [a_figure("n" * 80 + end) for end in (" (a.csv)", " (b.csv)")]
    data = [trace for figure in figures for trace in plotly_figure(figure)["data"]]
    lines = [t for t in data if t["meta"]["role"] in ("measured", "predicted")]
    assert len({trace["meta"]["series"] for trace in lines}) == 4
    assert len({trace["name"] for trace in lines}) == 4
    assert lines[0]["name"].endswith(" (a.csv)") and len(lines[0]["name"]) == 60


def test_groups_that_are_equal_when_cut_have_bars_of_their_own():
    groups = tuple("n" * 50 + middle + "n" * 50 for middle in "ab")
    axis = Axis("devices", categories=("1", "1"), groups=groups)
    figure = Figure("time", "t", axis, Axis("y"), bars=(Bars("part", (1.0, 2.0), "#000000"),))
    first, second = plotly_figure(figure)["data"][0]["x"][0]
    assert first != second


def test_a_legend_names_lines_alone():
    data = plotly_figure(a_figure())["data"]
    unnamed = [trace for trace in data if "name" not in trace]
    assert {trace["meta"]["role"] for trace in unnamed} == {"band", "mark"}
    assert not any(trace["showlegend"] for trace in unnamed)


def test_papers_and_the_page_dash_lines_alike():
    for line in a_figure().lines:
        trace = next(
            trace
            for trace in plotly_figure(a_figure())["data"]
            if trace["meta"]["role"] == line.role
        )
        _, lengths = line_style(line).get("linestyle", (0, ()))
        pixels = [f"{trace['line']['width'] * length:g}px" for length in lengths]
        assert trace["line"]["dash"] == (",".join(pixels) or "solid")
    assert len({str(line_style(line).get("linestyle")) for line in a_figure().lines}) == 3


def test_a_matrix_with_values_that_are_not_finite_is_json():
    heat = HeatMap(((0.0, float("nan")), (float("inf"), 31.0)), "% slower", middle=0.0)
    axis = Axis("seconds", categories=("0", "1"))
    (trace,) = plotly_figure(Figure("ranks", "t", axis, axis, heat=heat))["data"]
    assert trace["z"] == [[0.0, None], [None, 31.0]] and trace["zmax"] == 31.0
    json.dumps(trace, allow_nan=False)


def test_a_log_axis_names_round_numbers():
    layout = plotly_figure(a_figure())["layout"]
    assert layout["xaxis"]["ticktext"] == ["1", "2", "4", "8"]
    assert {"500", "1,000", "2,000"} <= set(layout["yaxis"]["ticktext"])


def test_many_numbers_of_devices_without_powers_of_two_have_ticks():
    counts = tuple(range(17, 32))
    figure = Figure("f", "F", DEVICES, Axis("y"), (Line("a", counts, tuple(map(float, counts))),))
    ticks = plotly_figure(figure)["layout"]["xaxis"]["tickvals"]
    assert (ticks[0], ticks[-1]) == (17, 31) and {*ticks} < {*counts}
    assert 6 <= len(ticks) <= 12


def a_front(*hours):
    """Times that double against these device-hours, with the labels of a Pareto front."""
    minutes = tuple(10.0 * 2**k for k in range(len(hours)))
    line = Line("a", minutes, hours, role="front", labels=tuple("abcdef"[: len(hours)]))
    marks = (
        Mark(minutes[0], hours[0], "balanced, least time, efficiency of 80 %"),
        Mark(minutes[-1], hours[-1], "least device-hours"),
    )
    return Figure("pareto", "t", Axis("minutes", log=True), Axis("hours", log=True), (line,),
                  marks=marks)  # fmt: skip


def test_a_log_axis_of_almost_equal_values_spans_a_factor_of_two_with_ticks():
    axis = plotly_figure(a_front(1.70, 1.69, 1.68))["layout"]["yaxis"]
    low, high = (10**end for end in axis["range"])
    assert high / low >= 2 and low < 1.68 and high > 1.70
    assert sum(low < tick < high for tick in axis["tickvals"]) >= 2


def test_labels_stay_beside_the_line_on_log_and_linear_axes():
    steep = plotly_figure(a_front(8.0, 4.0, 2.0, 1.0))
    assert steep["data"][-1]["textposition"] == ["top right", "middle left"]
    flat = plotly_figure(a_front(1.0, 1.0, 1.0, 1.0))
    assert all("middle" not in place for place in flat["data"][-1]["textposition"])
    assert len(flat["linear"]["labels"]["textposition"]) == 2
    assert flat["linear"]["yaxis"]["range"] == [0, 1.38] and "type" not in flat["linear"]["yaxis"]


def test_equal_labels_of_marks_beside_each_other_are_written_once():
    lines = tuple(Line(f"c{k}", (1, 2, 4), (100.0 + k, 200.0, 400.0 + k)) for k in range(3))
    marks = tuple(Mark(4, 400.0 + k, "use 4", k) for k in range(3))
    figure = Figure("f", "F", DEVICES, Axis("y", log=True), lines, marks=(Mark(1, 100.0, "use 4"),
                    *marks))  # fmt: skip
    assert plotly_figure(figure)["data"][-1]["text"] == ["<b>use 4</b>"] * 2 + ["", ""]


def test_small_shares_have_enough_digits():
    shares = Bars("part", (0.003, 0.0126), "#0072B2")
    axis = Axis("devices", categories=("1", "2"))
    figure = plotly_figure(Figure("lost", "t", axis, Axis("y", percent=True), bars=(shares,)))
    assert figure["data"][0]["text"] == ["0.3 %", "1.3 %"]
    assert figure["layout"]["yaxis"]["tickformat"] == "~%"  # "0.5%", not "0%" or "1%".


def test_the_preview_is_small_well_formed_and_shows_names_as_text():
    figure = replace(a_figure(), y=Axis(HOSTILE, log=True), marks=(Mark(4, 935.0, HOSTILE),))
    preview = svg_preview(plotly_figure(figure))
    assert len(preview) < 10_000
    root = ElementTree.fromstring(preview)  # Raises unless it is well-formed.
    texts = [element.text for element in root.iter("text")]
    assert texts[:4] == ["1", "2", "4", "8"] and "devices" in texts
    assert any(text.startswith("<a href=") for text in texts)
    assert not {element.tag for element in root.iter()} & {"a", "img", "script"}
    line = next(path for path in root.iter("path") if "--blue" in path.get("style"))
    (left, top), (right, bottom) = ((float(n) for n in line.get("d")[1:].split("L")[k].split())
                                    for k in (0, -1))  # fmt: skip
    assert left < right and top > bottom  # More devices are faster: the line rises.
