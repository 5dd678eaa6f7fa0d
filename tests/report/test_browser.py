"""The report as a reader sees it: in a real browser, offline."""

import os
import shutil

import pytest

from builders import a_study
from scalewise import results
from scalewise.api import run
from scalewise.report import explanation_sections, plot, prediction_plot, write_report

pytestmark = pytest.mark.browser
QUIET = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync",
    "--disable-component-update", "--no-first-run",
]  # fmt: skip


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Measure and explain two fake studies, one of them with an awkward name."""
    folders = [
        run(
            a_study(
                name=name, batch=batch, epochs=3, repeats=3,
                topologies=["1x1", "1x4", "2x4", "8x4"], options={"noise": 0.05, "drift": 0.03},
            ),
            tmp_path_factory.mktemp("runs"),
        )
        for name, batch in (("small batch", 16), ('large <b> "batch" & more', 128))
    ]  # fmt: skip
    why = [each for folder in folders for each in results.explanations(folder)]
    return results.curves(folders), why


@pytest.mark.parametrize("width", [1280, 420])
def test_the_page_is_whole_and_asks_the_network_for_nothing(measured, tmp_path, width):
    from playwright.sync_api import sync_playwright

    curves, why = measured
    path = write_report.write(curves, tmp_path / "report.html", explained=why)
    said, asked = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=QUIET)
        tab = browser.new_page(viewport={"width": width, "height": 900})
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(path.as_uri())
        figures = tab.locator("figure > svg")
        assert len(plot.available(curves)) == 7
        assert figures.count() == 7 + 2 * len(prediction_plot.METRICS)
        for place in range(figures.count()):
            box = figures.nth(place).bounding_box()
            assert box["width"] > 200 and box["height"] > 100
        explained = sum(len(section.tables) for section in explanation_sections.sections(why))
        ahead = 2 * 3  # Of each curve: what is predicted, and what was weighed for two purposes.
        assert tab.locator("table").count() == 2 * 4 + 1 + explained + ahead
        assert tab.locator("h2").all_inner_texts() == [
            "small batch", 'large <b> "batch" & more', "Side by side",
            "small batch: why", 'large <b> "batch" & more: why',
            "small batch: what more devices would give", "small batch: how many to use",
            'large <b> "batch" & more: what more devices would give',
            'large <b> "batch" & more: how many to use',
        ]  # fmt: skip
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        picture = os.environ.get("SCALEWISE_PICTURE")
        tab.screenshot(path=picture or tmp_path / "page.png", full_page=True)
        browser.close()
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
