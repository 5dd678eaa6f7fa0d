"""Names that hold formulas, markup or control characters, through every output format."""

import csv
import io
import os
import re
import subprocess
import sys
import unicodedata
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from builders import a_run
from scalewise.analysis.measure import Doubt, Estimate, Point, ScalingCurve
from scalewise.analysis.measure.curve import compare
from scalewise.cli import main
from scalewise.cli.progress import progress
from scalewise.errors import RunFailed
from scalewise.record.run_progress import RunProgress
from scalewise.report import curve_table, formats, page
from scalewise.report.curve_report import curve_reports
from scalewise.report.escape import escape_csv, printable, shell_word
from scalewise.report.figures import matplotlib_figure
from scalewise.report.figures.all_figures import figures
from scalewise.report.figures.matplotlib_axes import plot_label
from scalewise.report.figures.matplotlib_legend import MAX_ENTRIES
from scalewise.report.write_report import write_report
from scalewise.study import Status

TABLE = Path("table.csv")
HOSTILE = [
    "=cmd|' /C calc'!A0",
    "+1+cmd()",
    "-2+3",
    "@SUM(A1)",
    "\t=1+1",
    "\r=1+1",
    "  =1+1",
    "\n@x",
    '=HYPERLINK("http://evil","x")',
    "＝1+1",  # A full-width sign.
    "-inf",
    'a,"b";=1',
    "[x](http://evil)",
    "![x](http://evil/x.png)",
    "[x]: http://evil",
    "<http://evil>",
    "http://evil www.evil.com",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</title></pre></svg><script>alert(1)</script>",
    "--><script>alert(1)</script>",
    "{{ 7 * 7 }}",
    "&lt;b&gt;",
    "a | b \\| c\\",
    "`code` *bold* _em_ **b** ~~s~~",
    "# heading #",
    "> quote",
    "1. item",
    "- item",
    "---",
    "        indented",
    "one\ntwo\n\n# three\n| a | b |",
    "one\r\ntwo\u2028three\x0bfour\x85five",
    "% comment\n\\input{/etc/passwd}",
    "\\input{/etc/passwd} $x$ a_b^c {d} ~ # & %",
    "[2em]",
    "*",
    "$\\frac{$",
    "$x^2$ \\$y\\$",
    "_hidden",
    "[bold red]name[/]",
    "[/closed]",
    "\x1b[2J\x1b]0;title\x07",
    "\x9b2J\x00\x7f\x08",
    "left\u202eright",
    "lone \udc80 byte",
]
SHOWN = [ascii(name) for name in HOSTILE]


def a_curve(name: str, place: int = 0, devices: tuple[int, ...] = (1, 2, 4)) -> ScalingCurve:
    """Return a curve that bears the name wherever a record or a study can put one."""
    points = [
        Point(
            devices=count, nodes=1, throughput=Estimate(100.0 * count + place),
            time=Estimate(30 / count),
            complete={"train": Estimate(20 / count), name: Estimate(10 / count)},
            device_name=name, left_out=name, warnings=(name,),
            mfu_unknown=Doubt("operations not counted", {"reason": name}),
        )
        for count in devices
    ]  # fmt: skip
    curve = ScalingCurve(
        study=name,
        points=tuple(points),
        where={name: name, "env.PLACE": place},
        unit=name,
        work=name,
        warnings=(name,),
    )
    return compare(curve)


def curves(name: str) -> list[ScalingCurve]:
    """Return enough curves for a table in which the name is a cell."""
    return [a_curve(name, place) for place in range(4)]


def controls(text: str) -> set[str]:
    """Return the characters that change what a terminal does or how text is shown."""
    return {char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")}


@pytest.mark.parametrize("name", HOSTILE, ids=SHOWN)
def test_a_spreadsheet_computes_no_name(name):
    text = formats.comma_separated(curves(name))
    assert controls(text) == {"\n"}
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    assert len(rows) == 12
    assert {len(row) for row in rows} == {len(header)}
    for cell in [*header, *(cell for row in rows for cell in row)]:
        assert cell.lstrip()[:1] not in [*"=+-@＝"] or re.fullmatch(r"-?\d+\.\d+", cell)
    assert {row[0].removeprefix("'") for row in rows} == {printable(name)}


@pytest.mark.parametrize("number", [-3.5, -2, 1e-9, "-3.5", "+4", "-1e-05", ".5", "8"])
def test_numbers_stay_numbers_in_a_csv(number):
    curve = a_curve("plain")
    changed = replace(curve.points[1], gain_absolute=number)
    curve = replace(curve, points=(curve.points[0], changed), where={"options.x": number})
    rows = list(csv.DictReader(io.StringIO(formats.comma_separated([curve]))))
    assert float(rows[1]["gain_absolute"]) == float(rows[1]["options.x"]) == float(number)
    assert escape_csv(number) == number


def blocks(name: str) -> list[str]:
    """Return the structure that a renderer finds in the Markdown of a name."""
    tokens = MarkdownIt().enable(["table", "strikethrough"]).parse(formats.markdown(curves(name)))
    inline = {child.type for token in tokens for child in token.children or ()}
    assert inline <= {"text", "text_special", "softbreak"}
    return [token.type for token in tokens]


def rendered(token) -> str:
    return "".join(child.content for child in token.children)


@pytest.mark.parametrize("name", HOSTILE, ids=SHOWN)
def test_markdown_renders_a_name_as_text_and_a_table_as_a_table(name):
    assert blocks(name) == blocks("plain")
    text = formats.markdown(curves(name))
    assert controls(text) == {"\n"}
    tokens = MarkdownIt().enable(["table", "strikethrough"]).parse(text)
    cells = {rendered(token) for token in tokens if token.type == "inline"}
    assert " ".join(printable(curves(name)[0].name).split()) in {
        " ".join(cell.split()) for cell in cells
    }
    assert not re.search(r"(?<!\\):(?=//)|www\.", text)  # What GitHub makes a link of.


ESCAPED = re.compile(
    r"\\textbackslash\{\}|\\textasciitilde\{\}|\\textasciicircum\{\}|\\textless\{\}"
    r"|\\textgreater\{\}|\\textbar\{\}|\\textquotedbl\{\}|\{[\[\]*]\}|\\[&%$#_{}]|\$\\pm\$"
    r"|\\dots\{\}|(?<=[-'`,!?])\{\}(?=[-'`,])"
)
ALIGNMENT = re.compile(r"  \\begin\{tabular\}\{([rl]|p\{0\.\d\d\\linewidth\})+\}")


@pytest.mark.parametrize("name", HOSTILE, ids=SHOWN)
def test_latex_typesets_a_name_and_a_comment_stays_one(name):
    text = formats.latex(curves(name))
    assert controls(text) == {"\n"}
    usual = formats.latex(curves("plain")).split("\n")
    lines = text.split("\n")
    assert len(lines) == len(usual)
    for line, expected in zip(lines, usual):
        assert line.startswith("%") == expected.startswith("%")
        if line.startswith("%"):
            continue
        if ALIGNMENT.fullmatch(expected):
            assert ALIGNMENT.fullmatch(line)
            continue
        if not expected.endswith(r" \\") and "caption" not in expected:
            assert line == expected
            continue
        row = line.removeprefix("  \\caption{").removesuffix("}" if "caption" in line else r" \\")
        left = ESCAPED.sub("", row)
        assert left.count("&") == expected.count(" & ")
        assert not set(left) & set(r"\%$#_{}~^[]*<>|")


class Tags(HTMLParser):
    """Tags and attributes outside of plots, and the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[tuple[str, ...]] = set()
        self.text: list[str] = []
        self.scripts: list[str] = []
        self._tag = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        assert not [key for key, _ in attrs if key.startswith("on")]
        self.tags.add((tag, *(key for key, _ in attrs)))
        self._tag = tag

    def handle_endtag(self, tag):
        self._tag = ""

    def handle_data(self, data):
        if self._tag in ("script", "style"):
            self.scripts.append(data)
        else:
            self.text.append(data)


@pytest.mark.filterwarnings("ignore:Glyph", "ignore:constrained_layout")
def test_a_page_holds_names_as_text():
    names = [name for name in HOSTILE if set('<>"&{') & set(name) or controls(name)]
    plain, hostile = (
        Tags(
            page.html(curve_reports([(TABLE, a_curve(name, devices=(1,)), None) for name in some]))
        )
        for some in (("one", "two", "three"), names)
    )
    assert hostile.tags == plain.tags
    assert len(hostile.scripts) == len(plain.scripts)
    assert {printable(a_curve(name).name) for name in names} <= set(hostile.text)
    assert controls("".join(hostile.text)) == {"\n"}


@pytest.mark.parametrize(("kind", "first"), [("efficiency", 0), ("throughput", 16), ("time", 32)])
def test_a_plot_draws_every_name_as_text(kind, first):
    found = [a_curve(name) for name in HOSTILE[first : first + MAX_ENTRIES]]
    (figure,) = figures(curve_reports([(TABLE, curve, None) for curve in found]), kind)
    ElementTree.fromstring(matplotlib_figure.as_svg(figure))
    canvas = matplotlib_figure.draw(figure)
    labels = [axes.xaxis.label for axes in canvas.axes]
    labels += [text for legend in canvas.legends for text in legend.get_texts()]
    drawn = "\n".join(label.get_text() for label in labels)
    assert all(plot_label(curve.name, 40)[:18] in drawn for curve in found)
    assert not any(label.get_parse_math() for label in labels)


@pytest.mark.parametrize("name", HOSTILE, ids=SHOWN)
def test_a_terminal_gets_no_control_characters_from_a_name(name):
    assert controls(formats.text(curves(name))) == {"\n"}
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=True, color_system="standard")
    console.print(formats.render_terminal(curve_table.sections(curves(name)), 100))
    colours = re.compile(r"\x1b\[\d+(;\d+)*m")
    assert controls(colours.sub("", out.getvalue())) == {"\n"}


@pytest.mark.parametrize("ending", [".md", ".csv", ".tex", ".json", ".txt", ".html"])
def test_every_report_of_an_undecodable_file_name_is_written(ending, tmp_path):
    curve = a_curve("lone \udc80 byte", devices=(1,))
    written = write_report([(TABLE, curve, None)], tmp_path / f"report{ending}")
    assert "udc80 byte" in written.read_text(encoding="utf-8")


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_shows_every_name_as_text(terminal, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR" if terminal else "NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "300")
    for name in HOSTILE:
        run = a_run(env={"NAME": name.replace("\0", "")})
        with progress() as watcher:
            watcher.begin(1, 0, name)
            watcher.started(1, run)
            watcher.progressed(run, Status(run, "running", name, RunProgress(5, 10)))
            watcher.note(name)
            watcher.warn(RunFailed(name, hint=name))
            watcher.ended(run, "", 1.0)
        said = capsys.readouterr().err
        assert printable(run.title) in said
        ours = re.compile(r"\x1b\[(\?25[lh]|[\d;]*[AKm])|\r" if terminal else "$")
        assert controls(ours.sub("", said)) == {"\n"}


def test_an_error_message_sends_no_control_characters(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["scalewise", "measure", str(tmp_path / "\x1b[2J.csv")])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().err
    assert "error: " in said and "\\x1b[2J.csv" in said
    assert controls(said) == {"\n"}


@pytest.mark.parametrize(
    "name",
    ["a study", "two\nlines", "it's \\n\t$HOME `id`\n", "\u202eabc é", "a\x85\xadb", "caf\udce9 1"],
)
def test_a_shell_reads_a_word_as_it_was(name):
    word = shell_word(name)
    done = subprocess.run(
        ["bash", "-c", f"printf %s {word}"],
        capture_output=True,
        check=True,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    assert (os.fsdecode(done.stdout), len(word.splitlines())) == (name, 1)
    word.encode()  # A file or a terminal in UTF-8 takes it.
