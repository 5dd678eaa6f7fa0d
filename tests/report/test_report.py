"""What people read: tables, plots, pages, exactly as written."""

import csv
import io
import json
import re
from html.parser import HTMLParser
from math import inf

import pytest
from rich.console import Console

from scalewise.analysis.measure import Estimate, Point, ScalingCurve, curve_from_numbers
from scalewise.analysis.measure.curve import compare
from scalewise.analysis.predict import predict
from scalewise.errors import NotEnoughData, RecordError, SpecError
from scalewise.report import (
    curve_table,
    formats,
    page,
    plot,
    prediction_plot,
    prediction_sections,
    tables,
    write_report,
)

ODD = 'a|b_c & "d" <e>'
ENDINGS = ["html", "md", "csv", "tex", "json", "txt", "png", "svg"]


def a_curve(name="small", *, time=True):
    times = [(1, 556.0), (2, 439.0)] if time else []
    return curve_from_numbers([(1, 240.0), (2, 464.0)], times=times, name=name, scaling="weak")


def a_whole_curve(name="whole"):
    """A curve of which everything is known that a plot can show."""
    points = [
        Point(
            devices=n, nodes=1, throughput=Estimate(100.0 * n, 90.0 * n, 110.0 * n, 3),
            time=Estimate(30 / n, 29 / n, 31 / n, 3), epoch_time=Estimate(10 / n),
            complete={"launch": Estimate(1.0), "train": Estimate(30 / n - 1)},
            held=Estimate(2**22 / n), sent=Estimate(2**20 * n), exposed=Estimate(0.05 * n),
        )
        for n in (1, 2, 4)
    ]  # fmt: skip
    return compare(ScalingCurve(study=name, points=tuple(points)))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (12345.6, "12,346"), (1234.5, "1,234"), (999.96, "1,000.0"), (16.66, "16.66"),
        (1.0, "1.000"), (0.01234, "0.01234"), (0.0000123, "0.00001230"), (1.23e-7, "1.2e-07"),
        (0, "0"), (-0.5, "-0.5000"), (None, "–"), (inf, "–"), (float("nan"), "–"),
    ],
)  # fmt: skip
def test_numbers_have_about_four_figures(given, said):
    assert tables.number(given) == said


@pytest.mark.parametrize(
    ("given", "said"),
    [(0.9667, "96.7 %"), (1, "100.0 %"), (-0.0001, "0.0 %"), (-0.1, "-10.0 %"), (None, "–"),
     (Estimate(0.5), "50.0 %")],
)  # fmt: skip
def test_shares_are_shown_in_percent(given, said):
    assert tables.percent(given) == said


def test_an_interval_is_shown_as_its_half_width_or_not_at_all():
    known, alone = Estimate(0.8, 0.6, 0.9, 3), Estimate(0.8)
    assert (tables.relative_error(known), tables.point_error(known)) == ("18.8 %", "15.0")
    assert (
        tables.relative_error(alone),
        tables.point_error(alone),
        tables.relative_error(None),
    ) == (
        "–",
        "–",
        "–",
    )
    assert (tables.integer(1234567), tables.integer(None)) == ("1,234,567", "–")


def test_columns_of_which_nothing_is_known_are_hidden():
    (section,) = curve_table.sections([a_curve(time=False)])
    assert [each.title for each in section.tables] == ["Scaling"]
    assert section.tables[0].header == (
        "devices", "samples/s", "per device", "ideal", "speedup", "efficiency",
        "gain per doubling", "added", "serial fraction",
    )  # fmt: skip
    assert section.lines == (
        "weak scaling (batch per device fixed); work: taken as equal",
        "compared with 1 device; intervals are 90 %",
    )


def test_several_curves_stand_side_by_side():
    other = curve_from_numbers([(2, 50.0), (4, 80.0)], name="other", scaling="strong")
    *_, last = curve_table.sections([a_curve(), other])
    assert last.tables[0].header == (
        "devices", "small: samples/s", "small: complete s", "small: efficiency",
        "other: samples/s", "other: efficiency",
    )  # fmt: skip
    assert last.tables[0].rows[1:] == (
        ("2", "464.0", "439.0", "96.7 %", "50.00", "100.0 %"),
        ("4", "–", "–", "–", "80.00", "80.0 %"),
    )
    assert last.warnings == ("these curves differ in scaling: weak, strong",)


def test_markdown_is_exactly_this():
    assert formats.markdown([a_curve(ODD, time=False)]) == (
        '## a\\|b\\_c &amp; "d" &lt;e&gt;\n'
        "\n"
        "- weak scaling (batch per device fixed); work: taken as equal\n"
        "- compared with 1 device; intervals are 90 %\n"
        "\n"
        "### Scaling\n"
        "\n"
        "| devices | samples/s | per device | ideal | speedup | efficiency "
        "| gain per doubling | added | serial fraction |\n"
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        "| 1 | 240.0 | 240.0 | 240.0 | 1.000 | 100.0 % | – | – | – |\n"
        "| 2 | 464.0 | 232.0 | 480.0 | 1.933 | 96.7 % | 93.3 % | 224.0 | 3.4 % |\n"
    )


def test_latex_is_exactly_this():
    assert formats.latex([a_curve("b_c & 50 %", time=False)]) == (
        "% needs \\usepackage{booktabs}\n"
        "% b_c & 50 %\n"
        "% weak scaling (batch per device fixed); work: taken as equal\n"
        "% compared with 1 device; intervals are 90 %\n"
        "\\begin{table}\n"
        "  \\centering\n"
        "  \\caption{b\\_c \\& 50 \\%: Scaling}\n"
        "  \\begin{tabular}{rrrrrrrrr}\n"
        "    \\toprule\n"
        "    devices & samples/s & per device & ideal & speedup & efficiency "
        "& gain per doubling & added & serial fraction \\\\\n"
        "    \\midrule\n"
        "    1 & 240.0 & 240.0 & 240.0 & 1.000 & 100.0 \\% & -- & -- & -- \\\\\n"
        "    2 & 464.0 & 232.0 & 480.0 & 1.933 & 96.7 \\% & 93.3 \\% & 224.0 & 3.4 \\% \\\\\n"
        "    \\bottomrule\n"
        "  \\end{tabular}\n"
        "\\end{table}\n"
    )


def test_latex_spells_out_what_its_usual_font_prints_as_something_else():
    caption = '\\caption{a\\textbar{}b\\_c \\& "d" \\textless{}e\\textgreater{}: Scaling}'
    assert caption in formats.latex([a_curve(ODD)])


def test_csv_holds_every_number_with_its_interval():
    rows = list(csv.DictReader(io.StringIO(formats.comma_separated([a_whole_curve(ODD)]))))
    assert [row["study"] for row in rows] == [ODD] * 3
    names = [
        "devices",
        "scaling",
        "throughput",
        "throughput_low",
        "time",
        "complete_launch",
        "gain",
    ]
    assert [rows[1][name] for name in names] == ["2", "", "200.0", "180.0", "15.0", "1.0", "1.0"]
    assert (rows[0]["efficiency"], rows[0]["efficiency_high"], rows[0]["gain"]) == (
        "1.0",
        "1.0",
        "",
    )


def test_json_has_the_documented_shape():
    whole = json.loads(formats.as_json([a_curve(ODD)]))
    assert whole["schema"] == 1
    (curve,) = whole["curves"]
    assert (curve["study"], curve["where"], curve["scaling"]) == (ODD, {}, "weak")
    first, second = curve["points"]
    assert second["devices"] == 2
    assert second["throughput"] == {"value": 464.0, "low": None, "high": None, "count": 1}
    assert second["efficiency"]["value"] == pytest.approx(464 / 480)
    assert second["speedup_time"]["value"] == pytest.approx(556 / 439)
    for unknown in ("nodes", "epoch_time", "speedup_epoch", "memory", "accuracy"):
        assert second[unknown] is None
    assert first["gain"] is None


def test_json_never_holds_what_json_has_not():
    point = Point(devices=1, throughput=Estimate(1.0, 0.0, inf, 2), overhead=float("nan"))
    text = formats.as_json([ScalingCurve(study="t", points=(point,))])

    def refuse(word):
        raise AssertionError(word)

    (found,) = json.loads(text, parse_constant=refuse)["curves"][0]["points"]
    assert found["throughput"] == {"value": 1.0, "low": 0.0, "high": None, "count": 2}
    assert found["overhead"] is None


def test_plain_text_shows_names_as_they_are():
    names = ["a [/b] c", "[bold]d", ":smile:"]
    text = formats.text([a_curve(name) for name in names])
    for name in names:
        assert f"{name}: samples/s" in text


class Page(HTMLParser):
    """What a browser would find: addresses, words, number of drawings."""

    def __init__(self, html):
        super().__init__()
        self.addresses, self.words, self.drawings = [], [], 0
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.drawings += tag == "svg"
        for name, value in attributes:
            if name.rpartition(":")[2] in ("src", "href", "srcset", "action", "data", "poster"):
                self.addresses.append(value)

    def handle_data(self, words):
        self.words.append(words)


@pytest.mark.parametrize(
    "curves", [[a_curve(ODD)], [a_curve(ODD), a_curve("b")], [a_whole_curve()]]
)
def test_a_page_asks_nothing_of_anyone(curves):
    html = page.html(curves)
    found = Page(html)
    bands = sum(len(prediction_plot.predicted_metrics(predict(curve, at=[16]))) for curve in curves)
    assert found.drawings == html.count("<svg") == len(plot.available(curves)) + bands >= 6
    assert all(address.startswith(("#", "data:")) for address in found.addresses)
    assert "@import" not in html
    assert not re.findall(r"url\((?!#)", html)
    assert "<script" not in html


def test_a_page_says_what_lies_ahead_of_each_curve():
    told = Page(page.html([a_curve("a"), a_curve("b", time=False)])).words
    for name in "ab":
        assert f"{name}: what more devices would give" in told
        assert f"{name}: how many to use" in told
    whole = "\n".join(told)
    assert "4 devices: 464 × 2 × " in whole and "8 devices: 464 × 4 × " in whole
    assert "for balanced; intervals are 90 %" in whole
    assert "Options compared for efficiency=0.8" in whole
    assert "Laws of the throughput" not in whole


def test_a_curve_of_one_count_has_nothing_ahead():
    alone = curve_from_numbers([(4, 892.0)], name="alone")
    assert page.outlook_sections(alone) == []
    html = page.html([alone])
    assert "what more devices would give" not in html and "how many to use" not in html


def test_a_curve_that_cannot_be_predicted_says_why():
    rates = {1: None, 2: Estimate(200.0)}
    points = [
        Point(devices=n, throughput=rates[n], time=Estimate(30.0), samples=100 * n) for n in (1, 2)
    ]
    told = Page(page.html([ScalingCurve(study="unlike", points=tuple(points))])).words
    why = (
        "a prediction needs 2 device counts, got 1: measure one more, twice as large as the largest"
    )
    assert "unlike: what more devices would give" in told and why in told


def test_what_lies_ahead_is_what_predict_says():
    curve = a_whole_curve()
    ((shown, _), _) = page.outlook_sections(curve)
    (section,) = prediction_sections.sections(predict(curve, at=[8, 16]))
    assert shown.lines == section.lines and shown.tables == section.tables[:1]


def test_nothing_is_advised_twice():
    (_, (advised, plots)) = page.outlook_sections(a_whole_curve())
    assert len(set(advised.lines)) == len(advised.lines) and not plots
    assert [each.title for each in advised.tables] == [
        "Options compared for balanced", "Options compared for efficiency=0.8",
    ]  # fmt: skip


def test_a_page_shows_an_odd_name_as_it_is():
    html = page.html([a_curve(ODD)])
    assert "<h1>a|b_c &amp; &#34;d&#34; &lt;e&gt;</h1>" in html
    assert "<e>" not in html
    assert ODD in Page(html).words


@pytest.mark.parametrize("name", plot.PLOTS)
@pytest.mark.parametrize("ending", ["png", "svg"])
def test_every_plot_is_written(name, ending, tmp_path):
    path = write_report.write([a_whole_curve()], tmp_path / f"p.{ending}", plot=name)
    begins = {"png": b"\x89PNG\r\n", "svg": b"<?xml"}[ending]
    assert path.read_bytes().startswith(begins)


def test_many_curves_have_a_row_for_each_point_and_few_have_columns():
    few = [a_whole_curve(name) for name in "abc"]
    beside = curve_table.sections(few)[-1].tables[0]
    assert len(beside.header) == 1 + 3 * 3 and len(beside.rows) == len(few[0].points)
    many = [*few, a_whole_curve("d")]
    below = curve_table.sections(many)[-1].tables[0]
    assert below.header[:3] == ("devices", "curve", "samples/s")
    counts = [point.devices for point in many[0].points]
    expected = [(str(count), name) for count in counts for name in "abcd"]
    assert [(row[0].removesuffix(" !"), row[1]) for row in below.rows] == expected


def test_many_curves_look_unlike_each_other_and_their_names_stand_beside_them():
    many = [a_whole_curve(f"curve {number}") for number in range(9)]
    (axes,) = plot.figure(many, ["efficiency"]).axes
    lines = [each for each in axes.get_lines() if each.get_marker() not in ("None", "_", "|")]
    assert len({(each.get_color(), each.get_marker()) for each in lines}) == len(many)
    legend = axes.get_legend()
    assert legend.get_bbox_to_anchor().x0 >= axes.bbox.x1
    assert len(legend.get_texts()) == len(many) + 1


def test_two_curves_share_the_axes_of_a_plot():
    axes, *_ = plot.figure([a_whole_curve("one"), a_whole_curve("two")], ["efficiency"]).axes
    assert {each.get_text() for each in axes.get_legend().get_texts()} == {"one", "two", "ideal"}
    assert list(axes.xaxis.get_majorticklocs()) == [1, 2, 4]


@pytest.mark.parametrize("name", [r"costs $5 \or $6", "_hidden", ODD])
def test_a_plot_bears_an_odd_name(name):
    curve = a_whole_curve(name)
    assert plot.svg([curve], "throughput").startswith("<svg")
    legend = plot.figure([curve], ["throughput"]).axes[0].get_legend()
    assert len(legend.get_texts()) == 2  # The curve and the ideal.


def test_a_plot_shows_what_was_measured():
    (axes,) = plot.figure([a_whole_curve()], ["throughput"]).axes
    line = axes.get_lines()[0]
    assert list(zip(*line.get_data())) == [(1, 100), (2, 200), (4, 400)]


def test_curves_side_by_side_tell_what_they_hold_send_and_wait_for():
    *_, last = curve_table.sections([a_whole_curve("one"), a_whole_curve("two")])
    found = last.tables[-1]
    assert found.header == (
        "devices", "curve", "samples/s", "model MiB", "sent MiB/step", "exposed"
    )  # fmt: skip
    assert found.rows[2:4] == (
        ("2", "one", "200.0", "2.000", "2.000", "10.0 %"),
        ("2", "two", "200.0", "2.000", "2.000", "10.0 %"),
    )
    *_, last = curve_table.sections([a_curve("one"), a_curve("two")])
    assert len(last.tables) == 1


def test_a_plot_without_numbers_is_refused(tmp_path):
    assert plot.available([a_curve()]) == ["throughput", "speedup", "efficiency", "time", "both"]
    assert plot.available([a_curve(), a_curve(time=False)]) == [
        "throughput", "speedup", "efficiency", "both"
    ]  # fmt: skip
    with pytest.raises(NotEnoughData, match="plot 'epoch'"):
        write_report.write([a_curve()], tmp_path / "p.png", plot="epoch")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("file", "name", "said", "hint"),
    [
        ("p.png", "effeciency", "'effeciency'", "did you mean 'efficiency'?"),
        ("p.svg", "zzz", "'zzz'", "there are: throughput, speedup"),
        ("p.md", "time", "p.md cannot show a single plot", ".png and .svg"),
        ("p.pdf", None, "p.pdf: unknown ending", ".html .md .csv .tex .json .txt .png .svg"),
        ("p", None, "unknown ending", ".html"),
    ],
)
def test_what_cannot_be_drawn_or_written_is_refused(file, name, said, hint, tmp_path):
    with pytest.raises(SpecError) as problem:
        write_report.write([a_curve()], tmp_path / file, plot=name)
    assert said in str(problem.value)
    assert hint in problem.value.hint


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_report_makes_the_folder_it_goes_to(ending, tmp_path):
    path = tmp_path / "new" / f"r.{ending}"
    assert write_report.write([a_curve()], path) == path
    assert path.stat().st_size > 100


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_place_that_takes_no_file_is_named(ending, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match=f"cannot write .*r.{ending}") as problem:
        write_report.write([a_curve()], tmp_path / "file" / f"r.{ending}")
    assert "choose another folder" in problem.value.hint


@pytest.mark.parametrize("ending", ["html", "png"])
def test_a_name_too_long_for_a_file_is_named(ending, tmp_path):
    with pytest.raises(RecordError, match=r"cannot write .*too long"):
        write_report.write([a_curve()], tmp_path / f"{'r' * 300}.{ending}")


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_narrow_terminal_gets_whole_numbers_in_more_rows(width):
    curve = curve_from_numbers([(1, 240.0), (2, 464.0)], times=[(1, 556.0), (2, 439.0)])
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(
        formats.render_terminal(curve_table.sections([curve]), width)
    )
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    cells = {cell for line in lines for cell in line.split()}
    assert {"464.0", "1.933", "96.7", "93.3", "439.0", "21.0"} <= cells
