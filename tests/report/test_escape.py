"""Names that hold formulas, markup or control characters, through every output format."""

import csv
import io
import re
import sys
import unicodedata
from dataclasses import replace
from html.parser import HTMLParser
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
from scalewise.report import curve_table, formats, page, plot, write_report
from scalewise.report.escape import escape_csv, printable

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
    r"|\\textgreater\{\}|\\textbar\{\}|\{[\[\]*]\}|\\[&%$#_{}]|\$\\pm\$"
)


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
        self._plots = 0
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        assert tag != "script"
        assert not [key for key, _ in attrs if key.startswith("on")]
        self._plots += tag == "svg"
        if not self._plots:
            self.tags.add((tag, *(key for key, _ in attrs)))

    def handle_endtag(self, tag):
        self._plots -= tag == "svg"

    def handle_data(self, data):
        self.text.append(data)


@pytest.mark.filterwarnings("ignore:Glyph", "ignore:constrained_layout")
def test_a_page_holds_names_as_text():
    names = [name for name in HOSTILE if set('<>"&{') & set(name) or controls(name)]
    plain = Tags(page.html([a_curve(name, devices=(1,)) for name in ("one", "two")]))
    hostile = Tags(page.html([a_curve(name, devices=(1,)) for name in names]))
    assert hostile.tags == plain.tags
    assert {printable(a_curve(name).name) for name in names} <= set(hostile.text)
    assert controls("".join(hostile.text)) == {"\n"}


@pytest.mark.filterwarnings("ignore:Glyph", "ignore:constrained_layout")
@pytest.mark.parametrize("kind", ["throughput", "time", "both"])
def test_a_plot_draws_every_name_as_text(kind):
    found = [a_curve(name, devices=(1,)) for name in ["$\\frac{$", *HOSTILE]]
    ElementTree.fromstring(plot.svg(found, kind))
    axes, *_ = plot.figure(found, [kind]).axes
    labels = [*axes.get_legend().get_texts(), *axes.texts, axes.yaxis.label]
    drawn = {label.get_text().lstrip("\u200b") for label in labels}
    assert {printable(curve.name) for curve in found} <= drawn
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
    written = write_report.write([curve], tmp_path / f"report{ending}")
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
            watcher.progressed(run, 0.5)
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
