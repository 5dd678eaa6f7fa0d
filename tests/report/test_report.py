"""What people read: tables, plots, pages, exactly as written."""

import csv
import io
import json
from math import inf
from pathlib import Path

import pytest
from rich.console import Console

from scalewise.analysis.cost.rates import Rate
from scalewise.analysis.measure import Estimate, Point, ScalingCurve, curve_from_numbers
from scalewise.analysis.measure.curve import compare
from scalewise.errors import NotEnoughData, RecordError, SpecError
from scalewise.report import (
    curve_table,
    formats,
    page,
    tables,
)
from scalewise.report.curve_report import curve_reports
from scalewise.report.evidence import evidence
from scalewise.report.figures.all_figures import figures
from scalewise.report.paper_files import report_tables
from scalewise.report.slides import slides
from scalewise.report.tables import Table
from scalewise.report.write_report import write_report

ODD = 'a|b_c & "d" <e>'
SOURCE = Path("table.csv")
ENDINGS = ["html", "md", "csv", "tex", "json", "txt", "png", "svg"]


def a_curve(name="small", *, time=True):
    times = [(1, 556.0), (2, 439.0)] if time else []
    return curve_from_numbers([(1, 240.0), (2, 464.0)], times=times, name=name, scaling="weak")


def write(curves, path, **options):
    return write_report([(SOURCE, curve, None) for curve in curves], path, **options)


def page_of(*curves):
    return page.html(curve_reports([(SOURCE, curve, None) for curve in curves]))


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
    equal_steps, equal_runs = Estimate(0.8, 0.8, 0.8), Estimate(0.8, 0.8, 0.8, 3)
    assert tables.relative_error(equal_steps) == tables.point_error(equal_steps) == "–"
    assert tables.relative_error(equal_runs) == "0.0 %"
    assert tables.point_error(Estimate(1.0, 1.0, 1.0)) == "0.0"  # The baseline's efficiency.
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
    assert [each.title for each in section.tables] == ["Scaling, by throughput"]
    assert section.tables[0].header == (
        "devices", "samples/s", "per device", "ideal", "speedup", "efficiency",
        "gain per doubling", "added", "serial fraction",
    )  # fmt: skip
    assert section.lines == (
        "weak scaling (batch per device fixed); work: taken as equal",
        "compared with 1 device",
    )


def test_several_curves_stand_side_by_side():
    other = curve_from_numbers([(2, 50.0), (4, 80.0)], name="other", scaling="strong")
    *_, last = curve_table.sections([a_curve(), other])
    assert last.tables[0].header == (
        "devices", "small: samples/s", "small: complete time s", "small: efficiency",
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
        "- compared with 1 device\n"
        "\n"
        "### Scaling, by throughput\n"
        "\n"
        "| devices | samples/s | per device | ideal | speedup | efficiency "
        "| gain per doubling | added | serial fraction |\n"
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        "| 1 | 240.0 | 240.0 | 240.0 | 1.000 | 100.0 % | – | – | – |\n"
        "| 2 | 464.0 | 232.0 | 480.0 | 1.933 | 96.7 % | 93.3 % | 224.0 | 3.4 % |\n"
    )


def test_latex_is_exactly_this():
    assert formats.latex([a_curve("b_c & 50 %", time=False)]) == (
        "% needs \\usepackage[T1]{fontenc}\n"
        "%       \\usepackage[utf8]{inputenc}\n"
        "%       \\usepackage{booktabs}\n"
        "% b_c & 50 %\n"
        "% weak scaling (batch per device fixed); work: taken as equal\n"
        "% compared with 1 device\n"
        "\\begin{table}[htbp]\n"
        "  \\centering\\small\n"
        "  \\caption{b\\_c \\& 50 \\%: Scaling, by throughput}\n"
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
    caption = (
        "\\caption{a\\textbar{}b\\_c \\& \\textquotedbl{}d\\textquotedbl{} "
        "\\textless{}e\\textgreater{}: Scaling, by throughput}"
    )
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


def test_json_of_a_long_table_is_one_line_with_the_same_values(monkeypatch):
    indented = formats.as_json([a_curve()])
    monkeypatch.setattr(formats, "MAX_INDENTED_POINTS", 1)
    in_one_line = formats.as_json([a_curve()])
    assert "\n" in indented
    assert "\n" not in in_one_line
    assert json.loads(in_one_line) == json.loads(indented)


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


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_a_single_plot_is_written(ending, tmp_path):
    path = write([a_whole_curve()], tmp_path / f"p.{ending}", plot="speedup", columns=2)
    begins = {"png": b"\x89PNG\r\n", "svg": b"<?xml", "pdf": b"%PDF"}[ending]
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
    with pytest.raises(NotEnoughData, match="plot 'epoch'"):
        write([a_curve()], tmp_path / "p.png", plot="epoch")
    with pytest.raises(NotEnoughData, match="no plot has data"):
        write([curve_from_numbers([(4, 892.0)])], tmp_path / "p.png")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("file", "name", "said", "hint"),
    [
        ("p.png", "effeciency", "'effeciency'", "did you mean 'efficiency'?"),
        ("p.svg", "zzz", "'zzz'", "there are: throughput, speedup"),
        ("p.md", "time", "p.md cannot show a single plot", ".png, .svg, .pdf"),
        ("p.gif", None, "p.gif: unknown ending", ".html .md .csv .tex .json .txt .png .svg .pdf"),
        ("p", None, "unknown ending", ".html"),
    ],
)
def test_what_cannot_be_drawn_or_written_is_refused(file, name, said, hint, tmp_path):
    with pytest.raises(SpecError) as problem:
        write([a_curve()], tmp_path / file, plot=name)
    assert said in str(problem.value)
    assert hint in problem.value.hint


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_report_makes_the_folder_it_goes_to(ending, tmp_path):
    path = tmp_path / "new" / f"r.{ending}"
    assert write([a_curve()], path) == path
    assert path.stat().st_size > 100


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_place_that_takes_no_file_is_named(ending, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match=f"cannot write .*r.{ending}") as problem:
        write([a_curve()], tmp_path / "file" / f"r.{ending}")
    assert "choose another folder" in problem.value.hint


@pytest.mark.parametrize("ending", ["html", "png"])
def test_a_name_too_long_for_a_file_is_named(ending, tmp_path):
    with pytest.raises(RecordError, match=r"cannot write .*too long"):
        write([a_curve()], tmp_path / f"{'r' * 300}.{ending}")


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


def test_a_price_gives_costs_on_the_page_and_in_texts_plots_slides_and_evidence(tmp_path):
    price = Rate(36.0, currency="EUR")  # Per device-hour: 0.01 per second.
    curve = a_whole_curve()
    (report,) = curve_reports([(SOURCE, curve, None)], price)
    (figure,) = figures([report], "cost")
    assert figure.lines[0].y == pytest.approx((0.3, 0.3, 0.3))
    assert figure.lines[0].low == pytest.approx((0.29, 0.29, 0.29))
    assert figure.y.label == "EUR, complete job"
    chosen = report.summary.chosen
    assert chosen.cost.value == pytest.approx(0.3)
    shown = page.html([report])
    assert "for 0.3 EUR" in shown and 'data-figure="cost"' in shown
    text = write([curve], tmp_path / "report.txt", price=price).read_text()
    assert "cost EUR" in text and " cost " not in write([curve], tmp_path / "r.txt").read_text()
    slide_tables = [slide.table for slide in slides([report]) if slide.table]
    proposal_tables = [block for block in evidence([report]).blocks if isinstance(block, Table)]
    for shown_tables in (slide_tables, proposal_tables, [t.table for t in report_tables([report])]):
        assert any("cost EUR" in table.header for table in shown_tables)
