"""Figures as values: what they show of known curves; and that both sizes can be drawn."""

import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from builders import a_study
from compared import a_side
from fake_study import play_all
from scalewise import results
from scalewise.analysis.advise.best_scale import best_by_purpose
from scalewise.analysis.compare import trend_of_sources
from scalewise.analysis.explain.efficiency_parts import efficiency_parts
from scalewise.analysis.measure import Estimate, Point, ScalingCurve, curve_from_numbers
from scalewise.analysis.measure.curve import compare
from scalewise.record.write import write_json
from scalewise.report import trend_sections
from scalewise.report.curve_report import curve_reports
from scalewise.report.figures import IMAGE_SUFFIXES, Axis, Bars, Figure, HeatMap, Line, Mark
from scalewise.report.figures import matplotlib_figure as paper
from scalewise.report.figures.all_figures import FIGURES, all_figures, figures
from scalewise.report.figures.matplotlib_axes import plot_label
from scalewise.report.figures.palette import COLORS, MARKERS, PLOTLY_MARKERS
from scalewise.report.figures.plotly_figure import plotly_figure
from scalewise.report.figures.series import choose_unit, curve_names
from scalewise.report.figures.trend import trend_figure
from scalewise.report.page_sections import Compared, page_sections

COUNTS = (1, 2, 4)
HOSTILE = (
    r"costs $5 \or \input{x}", "n" * 300, "שלום _x", "_hidden\nline", "<b>&amp;</b>", "=1+1"
)  # fmt: skip


def a_curve(name="a", *, where=None):
    """A curve of which everything is known that a figure of a table can show."""
    points = [
        Point(
            devices=n, nodes=1, throughput=Estimate(90.0 * n + 10, 90.0 * n, 90.0 * n + 20, 3),
            time=Estimate(7200 / n + 600), epoch_time=Estimate(100 / n),
            complete={"launch": Estimate(600.0), "train": Estimate(7200 / n)},
            memory=Estimate(3 * 2**30), held=Estimate(2**30 / n), sent=Estimate(2**20 * n),
            exposed=Estimate(0.05 * n), energy=Estimate(3.6e6 * (1 + n / 10)),
            energy_covers="accelerators",
        )
        for n in COUNTS
    ]  # fmt: skip
    return compare(ScalingCurve(study=name, points=tuple(points), where=where or {}))


def reports(*curves):
    return curve_reports([(Path(f"{curve.study}.csv"), curve, None) for curve in curves])


@cache
def drawn(*names):
    """All figures of curves with these names; made once, as figures never change."""
    return all_figures(reports(*map(a_curve, names)))


def one(name, *names):
    (figure,) = drawn(*(names or "a"))[name]
    return figure


def test_a_figure_is_drawn_if_it_has_data_for_more_than_one_dot():
    needs_records = {"causes", "lost", "ranks", "cost"}
    assert list(drawn("a")) == [name for name in FIGURES if name not in needs_records]
    assert all(figure.name == name for name, shown in drawn("a").items() for figure in shown)
    single = curve_from_numbers([(4, 892.0)], times=[(4, 60.0)], name="alone")
    assert all_figures(reports(single)) == {}


def test_throughput_shows_measured_ideal_predicted_and_the_choice():
    figure = one("throughput")
    measured, ideal, predicted = figure.lines
    assert measured.x == COUNTS and measured.y == (100, 190, 370)
    assert measured.low == (90, 180, 360) and measured.high == (110, 200, 380)
    assert ideal.x == (1, 2, 4, 8, 16) and ideal.y == (100, 200, 400, 800, 1600)
    assert predicted.x == (4, 8, 16) and predicted.y[0] == 370
    assert predicted.low[1] < predicted.y[1] < predicted.high[1]
    (mark,) = figure.marks
    assert (mark.x, mark.y, mark.text) == (4, 370, "use 4 devices")


def test_speedup_and_efficiency_have_one_line_of_ideal_scaling():
    speedup = one("speedup", "a", "b")
    assert [line.y for line in speedup.lines] == [(1, 1.9, 3.7), (1, 1.9, 3.7), (1, 2, 4)]
    efficiency = one("efficiency", "a", "b")
    assert efficiency.lines[0].y == pytest.approx((1, 0.95, 0.925))
    assert efficiency.lines[-1].y == (1, 1, 1) and efficiency.y.percent
    left, right = one("both").lines
    assert not left.on_right and right.on_right and right.role == "second"


def test_complete_times_are_stacked_in_a_fitting_unit():
    figure = one("time")
    launch, train = figure.bars
    assert figure.y.label == "hours, complete job"
    assert launch.name == "launch" and launch.heights == pytest.approx((1 / 6,) * 3)
    assert train.heights == (2, 1, 0.5)
    assert figure.x.categories == ("1", "2", "4") and not figure.x.groups
    assert one("time", "a", "b").x.groups == ("a",) * 3 + ("b",) * 3


def test_resources_are_shown_in_fitting_units():
    peak, model = one("memory").lines
    assert (peak.name, peak.y) == ("a: peak", (3, 3, 3))
    assert (model.name, model.y) == ("a: model and optimizer", (1, 0.5, 0.25))
    assert one("sent").y.label == "MiB sent per step and device"
    assert one("energy").y.label == "kWh, complete job (accelerators)"
    assert one("energy").lines[0].y == pytest.approx((1.1, 1.2, 1.4))
    assert (one("epoch").y.label, one("epoch").lines[0].y) == ("seconds per epoch", (100, 50, 25))


def test_the_pareto_front_marks_the_choice_for_each_purpose():
    figure = one("pareto")
    (front,) = figure.lines
    assert front.labels == ("4 devices", "2 devices", "1 device")
    assert front.x == pytest.approx((2400 / 3600, 4200 / 3600, 7800 / 3600))
    assert front.y == pytest.approx((4 * 2400 / 3600, 2 * 4200 / 3600, 7800 / 3600))
    texts = {mark.text for mark in figure.marks}
    assert "least device-hours" in texts and any("least time" in text for text in texts)
    both = one("pareto", "a", "b")
    assert {mark.text for mark in both.marks} == {"balanced"}


def test_a_scale_that_is_slower_and_dearer_is_beaten():
    times = [(1, 100.0), (2, 60.0), (4, 70.0)]
    slow = curve_from_numbers([(n, 1000 / t) for n, t in times], times=times, name="slow")
    (report,) = reports(slow)
    front, beaten = figures([report], "pareto")[0].lines
    assert front.labels == ("2 devices", "1 device") and beaten.labels == ("4 devices",)
    best = best_by_purpose(report.summary.advice.choices)
    assert best["least time"].devices == 2 and best["least device-hours"].devices == 1


def test_marks_are_on_the_front():
    # On 2, the device-hours are less than on 1, by so little that 1 counts as equally good.
    times = [(1, 100.2), (2, 50.0), (4, 30.0)]
    near = curve_from_numbers([(n, 1000 / t) for n, t in times], times=times, name="near")
    (report,) = reports(near)
    assert best_by_purpose(report.summary.advice.choices)["least device-hours"].devices == 1
    figure = figures([report], "pareto")[0]
    front, beaten = figure.lines
    assert beaten.labels == ("1 device",)
    marks = {text: mark.x for mark in figure.marks for text in mark.text.split(", ")}
    assert marks["least device-hours"] == front.x[front.labels.index("2 devices")]
    assert set(marks.values()) <= set(front.x)


def test_names_of_curves_are_short_and_distinct():
    varied = [a_curve(where={"batch": size}) for size in (32, 64)]
    assert curve_names(reports(*varied)) == ["batch 32", "batch 64"]
    same = [
        replace(report, source=f"runs/{k}") for k, report in enumerate(reports(*[a_curve()] * 2))
    ]
    assert curve_names(same) == ["a (runs/0)", "a (runs/1)"]
    assert curve_names(reports(a_curve(), a_curve("b"))) == ["a", "b"]


def test_a_description_has_the_values():
    assert one("efficiency").description == (
        "Efficiency: parallel efficiency by devices. "
        "a: 100.0 % on 1 device, 95.0 % on 2 devices, 92.5 % on 4 devices."
    )
    assert "on 4 devices: 0.6667 (train 0.5 and launch 0.1667)" in one("time").description
    assert all(figure.description for shown in drawn("a").values() for figure in shown)


def test_units_fit_the_largest_value():
    assert choose_unit([], (("h", 3600.0), ("s", 1.0))) == ("s", 1.0)
    assert choose_unit([7199.0], (("h", 3600.0), ("s", 1.0))) == ("s", 1.0)
    assert choose_unit([7200.0], (("h", 3600.0), ("s", 1.0))) == ("h", 3600.0)


def test_markers_tell_curves_apart_when_colors_repeat():
    assert len(MARKERS) == len(PLOTLY_MARKERS) == len(COLORS) + 1


HEAT = Figure(
    "ranks", "Ranks", Axis("seconds", categories=tuple("012")), Axis("rank", categories=("0", "1")),
    heat=HeatMap(((0.0, 1.0, None), (2.0, -3.0, 4.0)), "% slower", middle=0.0),
)  # fmt: skip
ODD_LINES = Figure(
    "odd", "Odd", Axis("x", log=True), Axis("y", log=True), marks=(Mark(1, 1, "use"),),
    lines=(Line("inf", (1, 2), (float("inf"), 1.0)), Line("flat", (1, 2), (1.0, 1.0), (None, 0.0),
           (None, 3.0)), Line("huge", (1, 2), (1e-300, 1e300)), Line("none", (), ())),
)  # fmt: skip
MANY_BARS = Figure(
    "bars", "Bars", Axis("devices", categories=tuple(map(str, range(200)))), Axis("s"),
    bars=(Bars("plugin's own", (1.0,) * 200, "#DDDDDD"), Bars("none", (0.0,) * 200, "#000000")),
)  # fmt: skip


@pytest.mark.parametrize("figure", [HEAT, ODD_LINES, MANY_BARS], ids=lambda figure: figure.name)
def test_odd_values_are_drawn(figure):
    assert paper.as_svg(figure).startswith("<svg")


@pytest.mark.parametrize("suffix", IMAGE_SUFFIXES)
def test_a_file_is_one_or_two_columns_wide_and_always_the_same(suffix, tmp_path):
    figure = one("efficiency")
    assert paper.draw(figure, 2).get_figwidth() == 7.0
    canvas = paper.draw(figure)
    assert canvas.get_figwidth() == 3.4
    first = paper.write(canvas, tmp_path / f"a{suffix}").read_bytes()
    assert first == paper.render(paper.draw(figure), suffix)
    assert first.startswith({".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix])
    if suffix == ".pdf":
        assert b"/FontFile2" in first and b"/Type3" not in first  # TrueType, embedded.


def test_every_figure_of_hostile_names_is_drawn_with_its_legend_below_the_axes():
    for name in ("throughput", "time", "pareto", "both"):
        canvas = paper.draw(one(name, *HOSTILE))
        axes = canvas.axes[0]
        for legend in canvas.legends:
            assert legend.get_window_extent().y1 <= axes.get_window_extent().y0
            assert legend.get_window_extent().x1 <= canvas.bbox.x1 + 1
    texts = [text.get_text() for text in paper.draw(one("efficiency", *HOSTILE)).legends[0].texts]
    assert texts[:2] == [r"costs $5 \or \input{x}", plot_label("n" * 300, 40)]
    assert texts[3] == "\u200b_hidden line"


def a_flat_front():
    """Time against device-hours that are almost equal: labels are close, and no tick is near."""
    times = [(n, 6000 / n * (1 + n / 1000)) for n in (1, 2, 4, 8, 16)]
    curve = curve_from_numbers([(n, 1e5 / t) for n, t in times], times=times, name="flat")
    (figure,) = figures(reports(curve), "pareto")
    return figure


@pytest.mark.parametrize("figure", [one("pareto"), a_flat_front()], ids=["steep", "flat"])
def test_labels_cover_neither_points_nor_each_other_and_stay_inside(figure):
    canvas = paper.draw(figure)
    (axes,) = canvas.axes
    boxes = [text.get_window_extent() for text in axes.texts]
    points = axes.transData.transform(list(zip(*axes.lines[0].get_data())))
    assert len(boxes) == len(points)
    assert not any(box.contains(*point) for box in boxes for point in points)
    assert not any(a.overlaps(b) for k, a in enumerate(boxes) for b in boxes[:k])
    frame = axes.get_window_extent()
    assert all(frame.contains(*corner) for box in boxes for corner in box.corners())
    for low, high, ticks in ((*axes.get_xlim(), axes.get_xticks()),
                             (*axes.get_ylim(), axes.get_yticks())):  # fmt: skip
        assert high / low >= 2 and sum(low <= tick <= high for tick in ticks) >= 2


def test_all_figures_fit_into_one_picture():
    shown = [one("throughput"), one("time"), one("pareto")]
    canvas = paper.draw_all(shown)
    assert [axes.get_title(loc="left") for axes in canvas.axes if axes.get_title(loc="left")] == [
        figure.title for figure in shown
    ]


def test_a_history_has_a_line_for_each_number_of_devices_and_marks_its_changes():
    sides = [a_side(f"r{k}", 0.005, 3, slow=1.1 if k > 1 else 1.0) for k in range(4)]
    trend = trend_of_sources([[side] for side in sides])
    figure = trend_figure(trend)
    assert [line.name for line in figure.lines] == ["1 device", "2 devices", "4 devices"]
    assert figure.x.categories == ("r0", "r1", "r2", "r3") and figure.lines[0].low
    assert {mark.x for mark in figure.marks} == {2}
    assert all(mark.text.startswith("-9") or mark.text.startswith("-8") for mark in figure.marks)
    assert "in r3" in figure.description
    ticks = paper.draw(figure).axes[0].get_xticklabels()
    assert [tick.get_text() for tick in ticks] == ["r0", "r1", "r2", "r3"]
    shown = plotly_figure(figure)
    assert shown["layout"]["xaxis"]["ticktext"] == ["r0", "r1", "r2", "r3"]
    assert "<br>r2: " in shown["data"][0]["hovertext"][2]
    compared = Compared(tuple(trend_sections.sections(trend)), (figure,))
    sections = page_sections(reports(a_curve("r0"), a_curve("r1")), compared=compared)
    (section,) = [section for section in sections if section.key == "compare"]
    assert section.figures == (figure,) and "dropped by" in section.answers[0][1]


def a_breakdown(efficiency, factors):
    return SimpleNamespace(efficiency=efficiency, factors=factors)


def test_parts_of_efficiency_sum_to_the_whole():
    parts = efficiency_parts(a_breakdown(0.5, {"balance": 0.8, "transfer": 0.625, "input": None}))
    assert sum(parts.values()) == pytest.approx(1) and parts["efficiency"] == 0.5
    assert parts["transfer"] / parts["balance"] == pytest.approx(math.log(0.625) / math.log(0.8))
    # A cause that improved takes nothing; what no factor explains is named.
    parts = efficiency_parts(a_breakdown(0.5, {"balance": 1.25, "transfer": 0.5}))
    assert set(parts) == {"efficiency", "transfer", "unexplained"}
    assert sum(parts.values()) == pytest.approx(1)
    assert efficiency_parts(a_breakdown(1.2, {"balance": 1.2})) == {"efficiency": 1.2}
    assert efficiency_parts(a_breakdown(None, {})) == {}


def test_causes_lost_time_and_ranks_come_from_records(tmp_path):
    study = a_study(name="s", options={"slow": 0.01, "wait": 0.005, "launch": 2.0})
    write_json(tmp_path / "study.json", study.to_dict())
    assert len(list(play_all(study, tmp_path))) == 3
    reports = curve_reports(results.all_explained([tmp_path]))
    (causes,) = figures(reports, "causes")
    assert [sum(heights) for heights in zip(*(part.heights for part in causes.bars))] == (
        pytest.approx([1, 1, 1])
    )
    by_name = {part.name: part for part in causes.bars}
    assert next(iter(by_name)) == "efficiency"
    assert by_name["efficiency"].heights[0] == 1
    assert by_name["balance"].heights[1] > 0.1
    (lost,) = figures(reports, "lost")
    assert {"start-up", "balance"} <= {part.name for part in lost.bars}
    (ranks,) = figures(reports, "ranks")
    assert ranks.title == "s: ranks on 4 devices" and ranks.y.categories == ("0", "1", "2", "3")
    assert min(ranks.heat.values[3]) > 10 > max(map(max, ranks.heat.values[:3]))
    assert ranks.description.startswith("Rank 3 ")


def test_times_of_ranks_are_plain_numbers(tmp_path):
    study = a_study(name="s", topologies=["1x2"])
    write_json(tmp_path / "study.json", study.to_dict())
    assert len(list(play_all(study, tmp_path))) == 1
    (report,) = curve_reports(results.all_explained([tmp_path]))
    (point,) = report.explanation.points
    columns = len(point.heat.times)
    times = tuple(200 * 86400 * column / columns for column in range(columns))
    point = replace(point, heat=replace(point.heat, times=times))
    report = replace(report, explanation=replace(report.explanation, points=(point,)))
    (ranks,) = figures([report], "ranks")
    assert float(ranks.x.categories[-1]) > 100 and "e" not in "".join(ranks.x.categories)


def test_many_curves_are_counted_and_those_that_are_not_drawn_too():
    lines = tuple(Line(f"c{k}", (1, 2), (1.0, 2.0), color=k, curve=f"c{k}") for k in range(50))
    canvas = paper.draw(Figure("f", "F", Axis("devices", counts=True), Axis("y"), lines))
    assert canvas.legends[0].texts[-1].get_text() == "and 34 more (10 not drawn)"
    assert len(canvas.axes[0].lines) == 40
    groups = tuple(f"curve {k // 2}" for k in range(60))
    axis = Axis("devices", categories=("1", "2") * 30, groups=groups)
    canvas = paper.draw(
        Figure("b", "B", axis, Axis("s"), bars=(Bars("x", (1.0,) * 60, "#000000"),))
    )
    assert canvas.axes[0].get_xlabel().endswith("Z: curve 25\nand 4 more")
