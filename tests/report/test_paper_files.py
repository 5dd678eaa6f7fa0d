"""Figures and tables as files for papers: names, contents, hostile names."""

import csv
from pathlib import Path

import pytest

from scalewise.analysis.measure import curve_from_numbers
from scalewise.cli import app
from scalewise.errors import SpecError
from scalewise.report.curve_report import curve_reports
from scalewise.report.figures import matplotlib_figure
from scalewise.report.latex_table import latex_table, tex
from scalewise.report.page import column_classes
from scalewise.report.paper_files import NamedTable, report_tables, table_texts, write_files
from scalewise.report.tables import Table

TABLE = Path("table.csv")
HOSTILE = "\\input{/etc/passwd} $x_1 & 50 % # ../../up =1+1 中\n| two"
FORMULAS = Table("T", ("a", "b"), (("=HYPERLINK(1)", "12,345.6"), ("–", "a | b & c")))


def a_curve(name="a"):
    numbers = [(1, 1240.0), (2, 2464.0), (4, 4700.0)]
    return curve_from_numbers(numbers, times=[(1, 900.0), (2, 500.0), (4, 300.0)], name=name)


def tables(*names):
    return list(report_tables(curve_reports([(TABLE, a_curve(name), None) for name in names])))


def test_every_figure_and_table_is_a_file(tmp_path, monkeypatch):
    drawn, progress = [], []

    def write(canvas, path):
        drawn.append(path.name)
        assert canvas.get_figwidth() == (3.4 if "-1col" in path.name else 7.0)

    folder = tmp_path / "paper"
    monkeypatch.setattr(matplotlib_figure, "write", write)  # Drawing is tested in test_figures.
    folders = write_files(
        [(TABLE, a_curve(), None)], folder, on_progress=lambda *counts: progress.append(counts)
    )
    assert folders == [folder / "tables"]
    total = len(drawn) // 6  # Two widths of three formats.
    assert progress == [(done, total) for done in range(1, total + 1)]
    assert len(drawn) == len(set(drawn))
    for width in (1, 2):
        for suffix in ("pdf", "svg", "png"):
            assert f"throughput-{width}col.{suffix}" in drawn
    files = {path.name for path in (folder / "tables").iterdir()}
    stems = {name.rpartition(".")[0] for name in files}
    assert {"scaling-by-throughput", "time", "measured-and-predicted", "options-compared"} <= stems
    assert files == {f"{stem}{suffix}" for stem in stems for suffix in (".tex", ".md", ".csv")}


def test_a_line_break_is_a_space_in_latex():
    assert tex("a\nb\tc") == "a b c"


def test_tables_of_several_curves_have_names_that_differ():
    names = [named.name for named in tables("a", "b", HOSTILE, "n" * 300, "n" * 300)]
    assert len(set(names)) == len(names)
    assert "a-scaling-by-throughput" in names and "b-scaling-by-throughput" in names
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for name in names)
    assert max(map(len, names)) < 100


def test_latex_has_booktabs_a_caption_a_label_and_the_columns_that_fit():
    named = next(named for named in tables("a") if named.name == "scaling-by-throughput")
    text = table_texts(named)[".tex"]
    assert text.startswith("% needs \\usepackage[T1]{fontenc}")
    assert "\\caption{a: Scaling, by throughput}" in text
    assert "\\label{tab:scaling-by-throughput}" in text
    header = "devices & samples/s & speedup & efficiency & gain per doubling"
    assert f"\\begin{{tabular}}{{rrrrr}}\n    \\toprule\n    {header} \\\\\n    \\midrule\n" in text
    assert "    4 & 4,700 & 3.790 & 94.8 \\% & 90.7 \\% \\\\\n    \\bottomrule\n" in text
    rows = list(csv.reader(table_texts(named)[".csv"].splitlines()))
    assert rows[0][-1] == "serial fraction" and rows[-1][:2] == ["4", "4700"]


def test_hostile_names_are_text_in_every_table():
    for named in tables(HOSTILE):
        texts = table_texts(named)
        assert "\\input{" not in texts[".tex"] and "U+4E2D" in texts[".tex"]
        assert texts[".md"].count("\n|") == len(named.table.rows) + 2
    texts = table_texts(NamedTable("t", HOSTILE, FORMULAS, (HOSTILE,)))
    assert list(csv.reader(texts[".csv"].splitlines()))[1:] == [
        ["'=HYPERLINK(1)", "12345.6"], ["", "a | b & c"],
    ]  # fmt: skip
    assert "a \\| b &amp; c" in texts[".md"]
    comments = [line for line in texts[".tex"].splitlines() if "etc/passwd" in line]
    assert [line[:2] for line in comments] == ["% ", "  "]  # The note, and the caption.


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--files", "x", "--plot", "time"], "--files goes with neither"),
        (["--files", "x", "--slides"], "--files goes with neither"),
        (["--columns", "2"], "--columns is the width of a single plot"),
        (["--columns", "3", "--plot", "time", "-o", "x.png"], "1 or 2 columns"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, problem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("devices,throughput\n1,100\n2,190\n")
    with pytest.raises(SpecError, match=problem):
        app(["report", "t.csv", *options], standalone_mode=False)


def test_the_page_and_latex_align_the_same_columns_at_the_left():
    rows = (("1", "–", "~2 h", "all"), ("2", "+4 %", "3 h", "12"))
    table = Table("Times", ("devices", "gain", "time", "ranks"), rows)
    assert column_classes(table) == ["", "", "", "text"]
    assert r"\begin{tabular}{rrrl}" in "\n".join(latex_table(table, "Times"))
