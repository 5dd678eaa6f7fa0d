"""Slides: what each of them says for known curves, as HTML and as PDF."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from fake_study import a_watched_folder
from paths import ROOT
from scalewise import results
from scalewise.report import slides_html, slides_pdf
from scalewise.report.curve_report import curve_reports
from scalewise.report.slides import slides

TABLE = ROOT / "studies" / "published" / "vit-h14-tiny-224.csv"
HOSTILE = '<img src=x onerror="alert(1)"> {{ 7 * 7 }} \\input{x} שלום عالم 中文 \u202e' + "n" * 5000


def deck_of(*paths: Path):
    return slides(curve_reports(results.all_explained(paths)))


def a_table(folder, rows, name="table"):
    path = folder / f"{name}.csv"
    path.write_text(f"devices,throughput\n{rows}")
    return path


def page_count(content: bytes) -> int:
    return len(re.findall(rb"/Type /Page\b", content))


def test_a_deck_says_its_messages_in_order():
    deck = deck_of(TABLE)
    assert 5 <= len(deck) <= 8
    assert (
        deck[0].title
        == "4 devices are worth it: 2.79 times as fast as 1, at 70 % efficiency by time"
    )
    (alert,) = deck[0].alerts
    assert alert.startswith("Doubtful [outlier]: 32 devices")
    assert deck[-1].alerts[1].startswith("  fix: ")
    topics = [slide.topic for slide in deck]
    assert topics == [
        "vit-h14-tiny-224", "Absolute performance", "Scaling behaviour", "What holds it back",
        "Time and cost", "What more devices would give", "Conclusion", "How it was measured",
    ]  # fmt: skip
    by_topic = {slide.topic: slide for slide in deck}
    assert "per second" in by_topic["Absolute performance"].title
    assert (
        by_topic["Time and cost"].title == "The job takes 14 min on 4 devices: 0.936 device-hours"
    )
    assert re.match(r"64 devices would .*\(90 %: ", by_topic["What more devices would give"].title)
    assert by_topic["Conclusion"].title == "Use 4 devices"
    assert by_topic["Conclusion"].commands[0].startswith("scalewise advise ")
    assert by_topic["How it was measured"].title == "1 doubt weakens these results"
    answers = dict(deck[0].answers)
    assert answers["What is gained?"].startswith("The job takes 14 min on 4 devices instead of")
    assert answers["Why not more?"].startswith("Fixed costs (such as launch, data, build, compile)")
    assert "(90 % interval)" in answers["How sure?"]
    rows = {row[0]: row[1] for row in by_topic["Conclusion"].table.rows}
    assert rows == {
        "time and device-hours alike": "4", "only the time": "32",
        "the time, at 80 % efficiency or more": "32", "only the device-hours": "1",
    }  # fmt: skip
    lines = [line for slide in deck for line in (*slide.lines, *dict(slide.answers).values())]
    assert len(lines) == len(set(lines))


def test_what_is_measured_and_what_is_predicted_are_two_slides(tmp_path):
    deck = deck_of(a_table(tmp_path, "1,240\n2,475\n4,930\n"))
    performance, outlook = (
        next(slide for slide in deck if slide.topic == topic)
        for topic in ("Absolute performance", "What more devices would give")
    )
    assert max(x for line in performance.figure.lines for x in line.x) == 4
    assert max(x for line in outlook.figure.lines for x in line.x) == 16


@pytest.mark.parametrize(
    ("rows", "title", "conclusion"),
    [
        ("1,240\n2,475\n4,930\n", "4 devices are worth it", "Use 4 devices"),
        ("1,240\n2,250\n4,255\n", "Stay with 1 device: 4 are only 1.06 times", "Stay with 1"),
        ("1,240\n2,475\n4,48000\n", "Do not use these results", None),
        ("4,930\n", "No answer yet", "Measure a second number of devices"),
    ],
)
def test_the_first_and_the_last_words_are_the_verdict(rows, title, conclusion, tmp_path):
    deck = deck_of(a_table(tmp_path, rows))
    assert deck[0].title.startswith(title)
    ends = [slide.title for slide in deck if slide.topic == "Conclusion"]
    assert [end.startswith(conclusion) for end in ends] == ([True] if conclusion else [])


def test_a_blocking_doubt_stands_first_and_no_number_is_advised(tmp_path):
    deck = deck_of(a_watched_folder(tmp_path / "wrong", "same samples"))
    assert deck[0].blocked and deck[0].title.startswith("Do not use these results")
    answers = dict(deck[0].answers)
    assert "2 of 2 ranks read the same samples" in answers["What is wrong?"]
    assert "DistributedSampler" in answers["How to fix it?"]
    assert all(slide.title.startswith("Not reliable: ") for slide in deck if slide.figure)
    text = slides_html.html(deck, "wrong")
    assert "None can be advised until this is fixed" in text
    assert not re.search(r"[Uu]se \d|worth it|would process", text)


def test_a_deck_without_a_slide_about_limits_has_the_times_in_a_table(tmp_path):
    path = tmp_path / "linear.csv"
    path.write_text("devices,time\n1,100\n2,50\n4,25\n")
    by_topic = {slide.topic: slide for slide in deck_of(path)}
    assert "What holds it back" not in by_topic
    assert [row[0] for row in by_topic["Time and cost"].table.rows] == ["1", "2", "4"]
    text = slides_html.html([by_topic["Time and cost"], by_topic["Conclusion"]], "deck")
    assert '<th scope="col">devices</th>' in text
    assert '<th scope="col" class="name">what counts</th>' in text


def test_several_curves_share_slides(tmp_path):
    paths = [a_table(tmp_path, f"1,{rate}\n2,{1.9 * rate}\n", f"t{rate}") for rate in (100, 300)]
    deck = deck_of(*paths)
    assert deck[0].topic == "Scaling of 2 curves"
    name, verdict = deck[0].answers[0]
    assert name == "t100" and verdict == (
        "2 devices are worth it: 1.9 times as fast as 1, at 95 % efficiency. What takes the time "
        "is not known: a table does not show it. More than 2 devices were not measured."
    )
    assert {line.split(":")[0] for line in deck[1].lines} == {"t100", "t300"}
    titles = [slide.title for slide in deck]
    assert titles[:2] == [
        "More devices are worth it for 2 of 2",
        "t300 is fastest: 570 samples per second on 2 devices",
    ]
    assert "All keep 95 % efficiency on 2 devices" in titles
    assert "Use 2 devices for each" in titles


def test_many_curves_are_cut_to_what_fits(tmp_path):
    (loaded,) = results.all_explained([TABLE])
    curves = [replace(loaded[1], study=f"study {index}") for index in range(8)]
    reports = curve_reports([(TABLE, curve, None) for curve in curves])
    deck = slides(reports)
    assert deck[0].lines[-1] == "2 more curves were given, and are not shown."
    assert slides(reports[:7])[0].lines[-1] == "1 more curve was given, and is not shown."
    assert len(deck[0].alerts) == 4 and deck[0].alerts[-1] == "Also doubtful: 3 more"


def test_names_are_shown_as_text_and_nothing_is_fetched(tmp_path):
    (loaded,) = results.all_explained([a_table(tmp_path, "1,240\n2,475\n4,930\n")])
    named = replace(loaded[1], study=HOSTILE)
    whole = slides(curve_reports([(Path(HOSTILE), named, None)]))
    deck = [whole[0], whole[1], *whole[-2:]]
    text = slides_html.html(deck, HOSTILE)
    assert "<img" not in text and "&lt;img src=x onerror=&#34;alert(1)" in text
    assert "{{ 7 * 7 }}" in text
    assert not re.search(r'(src|href)="(?!data:|#)', text)
    assert text.count('class="slide') == len(deck)
    assert all(slide.figure.description for slide in whole if slide.figure)
    content = slides_pdf.pdf(deck, HOSTILE)
    assert content.startswith(b"%PDF-") and page_count(content) == len(deck)


@pytest.mark.parametrize(
    ("words", "problem", "hint"),
    [
        (["--slides", "-o", "x.csv"], "x.csv cannot hold slides", "--slides -o slides.pdf"),
        (["--evidence", "-o", "x.html"], "x.html cannot hold evidence", "-o evidence.tex"),
        (["--slides", "--evidence"], "--slides and --evidence are two documents", "one of them"),
        (["--request", "8"], "--request is the scale that --evidence justifies", "--evidence -o"),
        (["--slides", "--plot", "speedup"], "--slides and --plot exclude", "give one"),
    ],
)
def test_wrong_combinations_get_one_sentence_and_a_hint(words, problem, hint, scalewise):
    code, _, err = scalewise("report", TABLE, *words)
    assert code == 1 and problem in err and hint in err
    assert "Traceback" not in err


def test_drawings_of_a_deck_have_different_ids():
    text = slides_html.html(deck_of(TABLE), "deck")
    ids = re.findall(r'\sid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(ids)


def test_slides_are_written_by_the_command(scalewise, tmp_path):
    code, out, err = scalewise("report", TABLE, "--slides")
    assert (code, out, err) == (0, "slides.html\n", "")
    assert "4\u00a0devices are worth it" in (tmp_path / "slides.html").read_text()
