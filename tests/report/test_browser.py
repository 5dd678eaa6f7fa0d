"""The page as a reader uses it: in a real browser, from a file, offline."""

import json
import shutil
from itertools import pairwise

import pytest

from builders import a_study
from fake_study import play_all
from scalewise import results
from scalewise.analysis.measure import curve_from_numbers
from scalewise.record.write import write_json
from scalewise.report.write_report import write_report

pytestmark = pytest.mark.browser
QUIET = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync",
    "--disable-component-update", "--no-first-run",
]  # fmt: skip
HOSTILE = """a <img src=x onerror="alert(1)"> <a href="javascript:alert(2)">b</a> </script>"""
CONTRASTS = """() => {
    const values = (text) => text.match(/[\\d.]+/g).map(Number);
    const luminance = (color) => {
        const [r, g, b] = color.slice(0, 3).map((part) => {
            const share = part / 255;
            return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const background = (node) => {
        for (let at = node; at; at = at.parentElement) {
            const color = values(getComputedStyle(at).backgroundColor);
            if (color.length === 3 || color[3] > 0) return color;
        }
        return [255, 255, 255];
    };
    const ratios = {};
    const selector = "h1, h2, p, dt, dd, th, td, button, a, summary, li, b, code";
    for (const node of document.querySelectorAll(selector)) {
        if (!node.innerText || !node.checkVisibility()) continue;
        const colors = [values(getComputedStyle(node).color), background(node)];
        const [dark, light] = colors.map(luminance).sort((a, b) => a - b);
        const ratio = (light + 0.05) / (dark + 0.05);
        if (ratio < 4.5) ratios[`${node.tagName} ${node.className} ${node.innerText}`] = ratio;
    }
    return ratios;
}"""


COUNT_SCHEME_CHANGES = """() => {
    let changes = 0;
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
        changes += 1;
        document.documentElement.dataset.schemeChanges = changes;
    });
}"""


def a_folder(folder, name, options):
    study = a_study(
        name=name, batch=16, steps=40, repeats=2, topologies=["1x1", "1x2", "1x4", "2x4"],
        options={"noise": 0.02, "watts": 300.0} | options,
    )  # fmt: skip
    write_json(folder / "study.json", {"schema": 1, **study.to_dict()})
    list(play_all(study, folder))
    return folder


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Return the paths of a page about one study, and of one about two with an awkward name."""
    home = tmp_path_factory.mktemp("pages")
    one = a_folder(home / "one", "a study", {"slow": 0.01})
    loaded = results.all_explained([one])
    table = curve_from_numbers([(1, 240.0), (2, 464.0), (4, 700.0)], name=HOSTILE)
    return {
        "one": write_report(loaded, home / "one.html"),
        "two": write_report([*loaded, (one, table, None)], home / "two.html"),
    }


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=shutil.which("chromium"), args=QUIET)


@pytest.fixture
def open_page(browser):
    """Return a function that opens a page; afterwards it must have said and asked nothing."""
    said, asked, contexts = [], [], []

    def opened(path, width=1280, height=800, script="", **options):
        context = browser.new_context(
            viewport={"width": width, "height": height}, offline=True, **options
        )
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(60_000)
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("dialog", lambda dialog: said.append(dialog.message))
        tab.on("request", lambda request: asked.append(request.url))
        if script:
            tab.add_init_script(script)
        tab.goto(path.as_uri())
        tab.wait_for_selector("html[data-ready]", state="attached")
        return tab

    yield opened
    for context in contexts:
        context.close()
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_the_page_is_whole_at_every_width(open_page, pages, width):
    tab = open_page(pages["one"], width)
    figures = tab.locator("figure")
    assert figures.count() > 8
    assert tab.locator("figure .canvas .main-svg").count() >= figures.count()
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    for box in (table.bounding_box() for table in tab.locator(".scroll:visible").all()):
        assert box["x"] >= 0 and box["x"] + box["width"] <= width
    headline, command = (tab.locator(name).bounding_box() for name in ("h1", ".command >> nth=0"))
    assert headline["y"] < 120
    assert command["y"] + command["height"] < (844 if width == 390 else 800)


def test_hovering_shows_the_value_and_its_interval(open_page, pages):
    tab = open_page(pages["one"])
    box = tab.locator("figure >> nth=0 >> .points path >> nth=1").bounding_box()
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    text = tab.locator(".hoverlayer .hovertext").text_content()
    assert "2 devices: " in text and "samples per second" in text and "90 %: " in text


def test_series_and_axes_are_switched(open_page, pages):
    tab = open_page(pages["one"])
    figure = tab.locator("figure >> nth=0")
    lines = figure.locator(".js-line").count()
    ideal = figure.get_by_role("button", name="ideal")
    ideal.click()
    assert ideal.get_attribute("aria-pressed") == "false"
    assert figure.locator(".js-line").count() == lines - 1
    axis = "document.querySelector('figure .canvas')._fullLayout.yaxis.type"
    assert tab.evaluate(axis) == "log"
    figure.get_by_role("button", name="Linear axes").press("Enter")
    assert tab.evaluate(axis) == "linear"
    figure.get_by_role("button", name="Log axes").click()
    assert tab.evaluate(axis) == "log"


def test_dark_follows_the_system_and_the_switch(open_page, pages):
    tab = open_page(pages["one"], color_scheme="dark")
    font = "document.querySelector('figure .canvas')._fullLayout.font.color"
    dark = tab.evaluate(font)
    assert tab.evaluate(CONTRASTS) == {}
    tab.get_by_role("button", name="Switch to light").click()
    assert tab.evaluate(font) != dark
    assert tab.evaluate(CONTRASTS) == {}
    # A browser tells a page of changes once a frame: two in one frame would be none.
    tab.evaluate(COUNT_SCHEME_CHANGES)
    tab.emulate_media(color_scheme="light")
    # Not wait_for_function: it evaluates text, which the page's security policy refuses.
    tab.wait_for_selector('html[data-scheme-changes="1"]')
    tab.emulate_media(color_scheme="dark")
    tab.wait_for_selector('html[data-theme="dark"]')
    assert tab.evaluate(font) == dark


def test_tables_sort_copy_and_unfold(open_page, pages):
    tab = open_page(pages["one"], permissions=["clipboard-read", "clipboard-write"])
    table = tab.locator("#scaling .table >> nth=0")
    header = table.get_by_role("button", name="devices")
    first = table.locator("tbody tr >> nth=0 >> td >> nth=0")
    header.press("Enter")
    header.press("Enter")
    assert table.locator("th >> nth=0").get_attribute("aria-sort") == "descending"
    assert first.inner_text().split()[0] == "8"
    columns = table.locator("th:visible").count()
    table.get_by_role("button", name="All columns").click()
    assert table.locator("th:visible").count() > columns
    table.get_by_role("button", name="Copy the table").click()
    tab.wait_for_selector("#live:not(:empty)")
    copied = tab.evaluate("navigator.clipboard.readText()").splitlines()
    assert copied[0].startswith("devices\t") and copied[1].startswith("8")
    first.evaluate("cell => { cell.textContent = '=HYPERLINK(1)'; }")
    table.get_by_role("button", name="Copy the table").click()
    tab.wait_for_function("navigator.clipboard.readText().then(text => text.includes('HYPER'))")
    copied = tab.evaluate("navigator.clipboard.readText()").splitlines()
    assert copied[1].startswith("'=HYPERLINK(1)\t")


def test_data_and_plots_are_saved(open_page, pages):
    tab = open_page(pages["one"])

    def saved(name):
        with tab.expect_download() as download:
            tab.get_by_role("button", name=name).first.click()
        return download.value.suggested_filename, download.value.path().read_bytes()

    name, content = saved("CSV")
    assert name == "scalewise.csv" and content.startswith(b"study,scaling,devices")
    name, content = saved("JSON")
    assert len(json.loads(content)["curves"][0]["points"]) == 4
    name, content = saved("Save the table as CSV")
    assert name.endswith(".csv") and content.startswith(b"devices,")
    name, content = saved("Save this plot as SVG")
    assert name == "throughput.svg" and b"<svg" in content and b"samples per second" in content
    assert b"ideal" in content and b">trace " not in content
    name, content = saved("Save this plot as PNG")
    assert name == "throughput.png" and content.startswith(b"\x89PNG")


def test_the_keyboard_reaches_everything(open_page, pages):
    tab = open_page(pages["one"])
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "skip"
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "main"
    wanted = tab.locator("main :is(button, summary, a):visible").count()
    reached = set()
    for _ in range(3 * wanted):
        tab.keyboard.press("Tab")
        place = tab.evaluate(
            "[...document.querySelectorAll('main :is(button, summary, a)')]"
            ".indexOf(document.activeElement)"
        )
        if tab.evaluate("document.activeElement === document.body"):
            break
        reached.add(place)
    assert len(reached - {-1}) == wanted
    levels = tab.evaluate(
        "[...document.querySelectorAll('h1, h2, h3')].map((node) => Number(node.tagName[1]))"
    )
    assert levels[0] == 1 and all(after - before <= 1 for before, after in pairwise(levels))
    unnamed = tab.locator('figure .canvas:not([role="img"][aria-label])')
    assert unnamed.count() == 0


def test_the_page_prints_on_a4(open_page, pages, tmp_path):
    tab = open_page(pages["one"], 720, 1000, color_scheme="dark")
    tab.pdf(path=tmp_path / "page.pdf", prefer_css_page_size=True)
    content = (tmp_path / "page.pdf").read_bytes()
    assert content.count(b"/Type /Page\n") > 2 or content.count(b"/Type /Page ") > 2
    tab.emulate_media(media="print")
    assert not tab.locator(".toc").is_visible() and not tab.locator(".tools:visible").count()
    tab.set_viewport_size({"width": 695, "height": 1000})  # A4 without its margins, at 96 dpi.
    assert tab.evaluate("document.documentElement.scrollWidth") <= 695
    for table in tab.locator("table:visible").all():
        assert table.evaluate("node => node.getBoundingClientRect().right") <= 695


def test_a_hostile_name_is_text(open_page, pages):
    tab = open_page(pages["two"])
    assert tab.locator("img, .canvas a").count() == 0
    box = tab.locator("figure >> nth=0 >> .points path >> nth=-1").bounding_box()
    tab.mouse.move(box["x"] + 4, box["y"] + 4)
    series = tab.locator("figure >> nth=0 >> .series button").all_inner_texts()
    assert any(text.startswith("a <img src=x") for text in series)
    assert tab.locator(".card .name").all_inner_texts()[1].startswith("a <img src=x")


def test_without_decompression_a_sentence_stands_for_the_plots(open_page, pages):
    tab = open_page(pages["one"], script="delete window.DecompressionStream")
    assert tab.locator("#no-plots").is_visible()
    assert tab.locator("figure .main-svg, figure button").count() == 0
    assert tab.locator(".canvas:visible").count() == tab.locator(".preview:visible").count() == 1
    assert tab.locator("table:visible").count() > 5


@pytest.mark.parametrize("width", [390, 1280])
def test_the_first_plot_is_seen_before_plotly_and_stays_in_its_place(open_page, pages, width):
    boxes = "[...document.querySelectorAll('figure, section')].map((n) => n.offsetTop)"
    wait = "window.DecompressionStream = class { constructor() { throw window.boxes = %s; } };"
    tab = open_page(pages["one"], width, script=wait % boxes)
    assert tab.locator("figure .preview path").count() > 3
    early = tab.evaluate("boxes")
    assert len(early) > 8 and open_page(pages["one"], width).evaluate(boxes) == early


def test_without_scripts_the_first_plot_is_drawn_with_its_legend(browser, pages):
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(pages["two"].as_uri())
    assert tab.locator(".preview path").first.is_visible()
    assert "only the first plot is drawn" in tab.locator("noscript").last.inner_text()
    assert "a <img src=x" in tab.locator("figure noscript").inner_text()
    context.close()
