"""Slides as a speaker sees them: in a real browser, offline."""

import re
import shutil

import pytest

from paths import ROOT
from scalewise import results
from scalewise.report.presentation import write_document

pytestmark = pytest.mark.browser
TABLE = ROOT / "studies" / "published" / "vit-h14-tiny-224.csv"


def test_keys_clicks_and_print_move_through_the_slides(tmp_path):
    from playwright.sync_api import sync_playwright

    (path,) = write_document("slides", results.all_explained([TABLE]), tmp_path / "talk.html")
    messages, requests = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        tab = browser.new_page(viewport={"width": 1280, "height": 720}, color_scheme="dark")
        tab.on("console", lambda message: messages.append(message.text))
        tab.on("pageerror", lambda error: messages.append(str(error)))
        tab.on("request", lambda request: requests.append(request.url))
        tab.goto(path.as_uri())
        count = tab.locator(".slide").count()

        def shown():
            assert tab.locator(".slide:visible").count() == 1
            return int(re.match(r"\d+", tab.locator("#position").inner_text())[0])

        assert shown() == 1
        positions = []
        for key in ("ArrowRight", "Space", "PageDown", "ArrowLeft", "End", "ArrowRight", "Home"):
            tab.keyboard.press(key)
            positions.append(shown())
        assert positions == [2, 3, 4, 3, count, count, 1]
        tab.mouse.click(900, 300)
        assert shown() == 2
        tab.get_by_role("button", name="Previous slide").click()
        assert shown() == 1
        for _ in range(count):  # No slide has more than fits.
            slide = tab.locator(".slide.shown")
            assert slide.evaluate("s => s.scrollHeight <= s.clientHeight + 1")
            assert slide.evaluate("s => s.scrollWidth <= s.clientWidth + 1")
            tab.keyboard.press("ArrowRight")
        printed = tab.pdf(prefer_css_page_size=True)
        assert len(re.findall(rb"/Type\s*/Page\b", printed)) == count
        tab.set_viewport_size({"width": 390, "height": 844})
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390
        browser.close()
    assert messages == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
