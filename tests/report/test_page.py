"""The page: what its first screen says, which sections it has, and that it loads nothing."""

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from builders import a_study
from fake_study import a_watched_folder, play_all
from scalewise import results
from scalewise.analysis.measure import Estimate, Point, ScalingCurve, curve_from_numbers
from scalewise.record.write import write_json
from scalewise.report import page, page_sections
from scalewise.report.curve_report import curve_reports
from scalewise.report.figures import Axis, Bars, Figure, Line
from scalewise.report.figures.all_figures import FIGURES
from scalewise.report.figures.thinning import thinned
from scalewise.report.page_sections import FIGURE_SECTIONS, Compared
from scalewise.report.tables import Section
from scalewise.report.text.page import QUESTIONS, hero_note
from scalewise.report.write_report import write_report

ODD = 'a|b_c & "d" <e>'


class Page(HTMLParser):
    """What a browser would find: headings, texts, addresses, scripts by id."""

    def __init__(self, html):
        super().__init__()
        self.addresses, self.texts, self.scripts, self.figures = [], [], {}, []
        self.headings, self._open = [], [("", {})]
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if tag not in ("meta", "link", "br", "input"):
            self._open.append((tag, values))
        if tag == "figure":
            self.figures.append(values["data-figure"])
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            if name in values:
                self.addresses.append(values[name])

    def handle_endtag(self, tag):
        assert self._open.pop()[0] == tag

    def handle_data(self, text):
        tag, values = self._open[-1]
        if tag == "script":
            self.scripts[values.get("id", "code")] = text
        elif tag != "style":
            self.texts.append(" ".join(text.split()))
            if tag in ("h1", "h2"):
                self.headings.append(text)


def unpacked(text):
    return gzip.decompress(base64.b64decode(text)).decode()


def page_of(*curves):
    return Page(page.html(curve_reports([(Path("table.csv"), curve, None) for curve in curves])))


def a_curve(name="small", rates=((1, 240.0), (2, 464.0), (4, 900.0))):
    return curve_from_numbers([*rates], times=[(1, 556.0), (2, 439.0)], name=name, scaling="weak")


def page_of_folder(folder):
    return Page(page.html(curve_reports(results.all_explained([folder]))))


@pytest.fixture(scope="module")
def explained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    study = a_study(name="one study", steps=60, batch=16, topologies=["1x1", "1x2", "2x2"])
    write_json(folder / "study.json", {"schema": 1, **study.to_dict()})
    list(play_all(study, folder))
    return page_of_folder(folder)


def test_the_first_screen_gives_the_verdict_the_cause_and_the_next_command(explained):
    assert explained.headings[0] in ("Use 2 devices", "Use 4 devices")
    text = "\n".join(explained.texts)
    assert "times as fast as 1" in text
    assert text.index("What costs most?") < text.index("How sure?") < text.index("\nNext\n")
    assert text.index("\nNext\n") < text.index("How does it scale?")
    assert explained.figures[0] == "throughput"


def test_every_section_is_a_question_with_an_answer(explained):
    assert explained.headings[1:] == [QUESTIONS[key] for key in QUESTIONS if key != "compare"]
    text = "\n".join(explained.texts)
    assert "4 devices are " in text and "of ideal" in text
    assert "Training was measured on 1, 2 and 4 devices, once, " in text


def test_a_page_asks_nothing_of_anyone(explained):
    for found in (explained, page_of(a_curve(ODD)), page_of(a_curve(ODD), a_curve("b"))):
        assert all(address.startswith(("#", "data:")) for address in found.addresses)
        figures = json.loads(found.scripts["figures"])
        assert set(found.figures) == figures.keys() and len(figures) >= 3
        assert json.loads(unpacked(found.scripts["numbers"]))["curves"]
        assert unpacked(found.scripts["csv"]).startswith("study,scaling,devices")
    html = page.html(curve_reports([(Path("a.csv"), a_curve(ODD), None)]))
    assert "default-src 'none'" in html and "@import" not in html
    assert not re.findall(r"url\((?!#)", html.partition('id="plotly"')[0])


def test_every_figure_has_a_section():
    placed = {name for names in FIGURE_SECTIONS.values() for name in names}
    assert FIGURES.keys() - placed == {"throughput", "both"}


def test_a_blocked_study_gets_no_number(tmp_path):
    found = page_of_folder(a_watched_folder(tmp_path, "same samples"))
    assert found.headings[0] == "No answer: the results are not reliable"
    text = "\n".join(found.texts)
    assert text.index("Not reliable [same-samples]") < text.index("No answer")
    assert "Use 2" not in text and "use 2" not in found.scripts["figures"]


def test_several_curves_have_a_card_each_and_one_plot(explained):
    found = page_of(a_curve("a"), a_curve("b"))
    assert found.headings[0] == "2 curves compared" and "How do they compare?" in found.headings
    assert found.figures.count("throughput") == 1
    series = {
        trace["meta"]["series"]
        for trace in json.loads(found.scripts["figures"])["throughput"]["data"]
    }
    assert {"a", "b", "ideal"} <= series


def test_the_doubts_of_a_comparison_come_before_its_answer():
    section = Section("a → b", ("b is faster.",), alerts=("a: Doubtful [x]: <noisy>.",))
    reports = curve_reports([(Path("a.csv"), a_curve(name), None) for name in "ab"])
    text = "\n".join(Page(page.html(reports, compared=Compared((section,)))).texts)
    assert text.index("a: Doubtful [x]: <noisy>.") < text.index("b is faster.")


def test_a_section_that_has_figures_alone_is_shown(monkeypatch):
    monkeypatch.setattr(page_sections, "ANSWERS", {})
    monkeypatch.setattr(page_sections, "_parts", lambda *arguments: iter(()))
    found = page_of(a_curve())
    assert QUESTIONS["scaling"] in found.headings and "speedup" in found.figures


def test_a_curve_of_one_count_has_no_plot_and_nothing_ahead():
    found = page_of(curve_from_numbers([(4, 892.0)], name="alone"))
    assert found.figures == [] and QUESTIONS["more"] not in found.headings
    assert found.headings[0] == "No answer yet"


def test_a_curve_that_cannot_be_predicted_says_why():
    rates = {1: None, 2: Estimate(200.0)}
    points = [
        Point(devices=n, throughput=rates[n], time=Estimate(30.0), samples=100 * n) for n in (1, 2)
    ]
    found = page_of(ScalingCurve(study="unlike", points=tuple(points)))
    assert any("a prediction needs 2 device counts, got 1" in text for text in found.texts)


def test_a_page_shows_an_odd_name_as_it_is():
    found = page_of(a_curve(ODD))
    assert ODD in found.texts


def test_json_in_a_script_cannot_end_it():
    text = "</script><script>\u2028&"
    shown = page.script_json({"name": text})
    assert not set("<>&\u2028") & set(shown) and json.loads(shown) == {"name": text}


def test_json_that_a_browser_cannot_read_is_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        page.script_json({"z": float("nan")})


def test_many_curves_and_points_are_cut_with_a_sentence(tmp_path):
    counts = [2**power for power in range(9)]
    curves = [a_curve(f"curve {k}", [(n, (200.0 + k) * n) for n in counts]) for k in range(150)]
    loaded = [(tmp_path / "many.csv", curve, None) for curve in curves]
    path = write_report(loaded, tmp_path / "many.html")
    html = path.read_text()
    assert "12 curves of 150 are shown in full" in html
    assert "The first 200 of 1350 rows" in html
    assert len(html) < 3e6


def test_a_figure_of_many_points_is_thinned():
    x = tuple(map(float, range(1, 1001)))
    line = Line("long", x, x, tuple(x), tuple(x))
    bars = Bars("part", x, "#0072B2")
    axis = Axis("devices", categories=tuple(map(str, range(1000))))
    figure, note = thinned(Figure("f", "t", axis, Axis("y"), (line,), (bars,)))
    (thin,), (part,) = figure.lines, figure.bars
    assert len(thin.x) == len(thin.low) == 300 and (thin.x[0], thin.x[-1]) == (1.0, 1000.0)
    assert len(part.heights) == len(figure.x.categories) == 120
    assert note.startswith("Drawn: 300 of up to 1,000 points of a line, 120 of 1,000 bars.")


def test_the_first_plot_says_what_start_up_does_to_the_complete_time(tmp_path):
    table = tmp_path / "short.csv"
    table.write_text("devices,throughput,time\n1,100,600\n2,198,500\n4,390,400\n")
    (report,) = curve_reports(results.all_explained([table]))
    assert hero_note(report) == (
        "These are training steps alone: 4 devices are 3.9 times as fast as 1. In complete time, "
        "with start-up, they are 1.5 times as fast."
    )
