"""The documentation says what the code does: its examples, links, names and numbers."""

import doctest
import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
import tomllib
import typer

from paths import ROOT
from scalewise import api, errors, results
from scalewise.analysis.measure import Point
from scalewise.cli import app
from scalewise.frameworks.fake import Law
from scalewise.launch.slurm import SlurmLauncher
from scalewise.report import summary_sections
from scalewise.report.figures.all_figures import FIGURES
from scalewise.spec import RUN_KEYS, STUDY_KEYS, StudySpec
from scalewise.study.load_study import apply_variant

PACKAGE = ROOT / "src" / "scalewise"
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md")), ROOT / "studies" / "README.md"]
CARDS = sorted(set((DOCS / "metrics").glob("*.md")) - {DOCS / "metrics" / "README.md"})
HEADINGS = ["Question", "Formula", "Code", "Unit", "Example", "How it misleads"]


def commands(group, above=""):
    """Return every command by the words that give it, those of a group too."""
    found = {}
    for name, each in group.commands.items():
        words = f"{above}{name}"
        found |= commands(each, f"{words} ") if hasattr(each, "commands") else {words: each}
    return found


COMMANDS = commands(typer.main.get_command(app))
ERRORS = [kind for kind in vars(errors).values() if isinstance(kind, type)]


def named(path):
    return str(path.relative_to(ROOT))


def blocks(page, language):
    """Return the page's code blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.M | re.S)


def prose(page):
    """Return the page without its code blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)


def headings(page):
    return re.findall(r"^#+ (.+)$", prose(page), re.M)


def anchors(page):
    """Return what links into the page can point to."""
    return [re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings(page)]


def section(name, heading):
    """Return what stands under a heading of a reference page, up to the next one of its rank."""
    rank, text = heading.count("#"), prose(DOCS / "reference" / name)
    found = re.search(rf"^{re.escape(heading)}$(.*?)(?=^#{{1,{rank}}} |\Z)", text, re.M | re.S)
    assert found, f"{name} has no {heading!r}"
    return found[1]


def shown_studies():
    """Return the studies of all pages and files; a block without name and [run] is none."""
    texts = {path: [path.read_text()] for path in sorted((ROOT / "studies").glob("*.toml"))}
    texts |= {page: blocks(page, "toml") for page in PAGES}
    return [
        pytest.param(text, id=f"{named(path)}-{number}")
        for path, found in texts.items()
        for number, text in enumerate(found, start=1)
        if re.search(r"^(name =|\[run\])", text, re.M) and "[[" not in text
    ]


def leads_somewhere(page, link):
    path, _, anchor = link.partition("#")
    found = (page.parent / path).resolve() if path else page
    return found.is_file() and (not anchor or anchor in anchors(found))


@pytest.mark.parametrize("text", shown_studies())
def test_every_study_that_is_shown_is_accepted(text):
    said = tomllib.loads(text)
    for variant in [None, *said.get("variant", {})]:
        assert StudySpec.from_dict(apply_variant(said, variant)).runs()


def slurm_studies():
    """Return the studies of all pages, files and of ``init`` that go to a cluster."""
    starter = (ROOT / "src/scalewise/starter.toml").read_text()
    shown = [
        *shown_studies(),
        pytest.param(re.sub(r"^# ?(?=\[|\w+ =)", "", starter, flags=re.M), id="init"),
    ]
    found = []
    for each in shown:
        said = tomllib.loads(each.values[0])
        for variant in [None, *said.get("variant", {})]:
            study = StudySpec.from_dict(apply_variant(said, variant))
            if study.launcher_name == "slurm":
                found.append(pytest.param(study, id=f"{each.id} {variant or ''}".strip()))
    return found


def test_the_guide_to_slurm_the_studies_and_init_show_a_cluster():
    shown = {each.id for each in slurm_studies()}
    assert {"docs/guides/slurm.md-1", "init", "studies/mnist.toml-1 slurm"} <= shown


@pytest.mark.parametrize("study", slurm_studies())
def test_every_study_for_a_cluster_asks_for_devices_and_a_time(study, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    launcher = SlurmLauncher(study.launcher)
    for run in study.runs():
        text = "".join(launcher.plan([run], tmp_path).files.values())
        assert f"#SBATCH --gres=gpu:{run.topology.devices}\n" in text
        assert "#SBATCH --time=" in text
    assert "device-hours" in launcher.request_summary(study.runs())


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_relative_link_leads_to_a_file_and_a_heading(page):
    links = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    near = [link for link in links if "://" not in link]
    assert [link for link in near if not leads_somewhere(page, link)] == []


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=named)
def test_every_page_is_listed_on_the_first_page_of_its_kind(page):
    first = DOCS / "metrics" / "README.md" if page in CARDS else DOCS / "README.md"
    assert page == first or f"({page.relative_to(first.parent)})" in first.read_text()


@pytest.mark.parametrize("path", sorted((ROOT / "studies/published").glob("*.csv")), ids=named)
def test_every_published_curve_has_a_source_and_nothing_to_warn_of(path):
    assert re.search(r"^# Source: \S", path.read_text(), re.M)
    (curve,) = results.curves([path], scaling="weak", devices_per_node=4)
    assert len(curve.points) > 1
    assert not curve.warnings and not any(point.warnings for point in curve.points)


@pytest.mark.parametrize("card", CARDS, ids=named)
def test_every_metric_card_has_the_six_headings(card):
    assert headings(card)[1:] == HEADINGS


@pytest.mark.parametrize(
    ("page", "heading", "names"),
    [
        ("study-file.md", "## The study", STUDY_KEYS),
        ("study-file.md", "## `[run]`", RUN_KEYS),
        ("study-file.md", "### The fake machine's law", [each.name for each in fields(Law)]),
        ("json.md", "### A point", [each.name for each in fields(Point)]),
        ("cli.md", "## report", list(FIGURES)),
        ("errors.md", "## The tree", [kind.__name__ for kind in ERRORS]),
    ],
)
def test_every_name_is_in_the_reference(page, heading, names):
    told = section(page, heading).replace("`[", "`").replace("]`", "`")
    assert names and [name for name in names if f"`{name}`" not in told] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_the_reference_with_its_arguments_and_an_example(name):
    told = section("cli.md", f"## {name}")
    for each in COMMANDS[name].params:
        words = each.opts if each.param_type_name == "option" else [each.metavar or each.name]
        assert [word for word in words if f"`{word}`" not in told] == []
    assert f"scalewise {name}" in "".join(blocks(DOCS / "reference/cli.md", "sh"))


def test_the_tree_of_errors_is_the_one_in_the_code():
    tree = errors.__doc__.partition("\n\n")[2]
    assert tree in (DOCS / "reference/errors.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_python_block_compiles(page):
    for block in blocks(page, "python"):
        examples = doctest.DocTestParser().get_examples(block)
        compile("".join(each.source for each in examples) or block, named(page), "exec")


def test_the_python_of_the_start_page_runs_and_prints_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    start = DOCS / "start.md"
    for text in blocks(start, "toml"):
        study = tomllib.loads(text)
        if study["run"].get("framework") == "fake":
            Path(f"{study['name']}.toml").write_text(text)
    for block in blocks(start, "python"):
        exec(compile(block, "start.md", "exec"), {})
        printed = capsys.readouterr().out.split()
        assert set(re.findall(r"\)  # ([\d.]+)$", block, re.M)) <= set(printed)


@pytest.mark.parametrize("page", ["README.md", "docs/design.md"])
def test_the_tree_names_what_is_there(page):
    text = (ROOT / page).read_text()
    tree = text[text.index("src/scalewise/\n") :].split("```")[0].splitlines()[1:]
    tree = [line for line in tree if not line.startswith("tests/")]
    folders = [PACKAGE]
    for line in tree:
        depth = line.index("── ") // 4
        path = folders[depth] / line.split("── ")[1].split()[0]
        assert path.exists(), f"{page} names {path.relative_to(PACKAGE)}"
        folders[depth + 1 :] = [path]
    top = {path for path in PACKAGE.iterdir() if path.name not in ("__init__.py", "__pycache__")}
    rooms = {path for path in top if path.is_dir() or path.suffix == ".py"}
    listed = {PACKAGE / line.split("── ")[1].split()[0] for line in tree if line.index("── ") < 4}
    assert rooms <= listed, f"{page} leaves out {rooms - listed}"


def test_files_that_a_new_part_takes_are_there():
    table = (
        (ROOT / "CONTRIBUTING.md").read_text().partition("## Add a part")[2].partition("\n## ")[0]
    )
    rooms = "|".join(path.name for path in PACKAGE.iterdir() if path.is_dir())
    paths = re.findall(rf"`((?:{rooms})/[\w/]*(?:\.\w+)?)`", table)
    assert len(paths) > 15
    for path in paths:
        assert (PACKAGE / path).exists() or "NAME" in path, path


def test_what_the_pages_import_is_there():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    imports = re.compile(r"^(?:>>> )?(from scalewise[\w.]* import (?:\([^)]*\)|[\w, ]+))", re.M)
    lines = {line for page in pages for line in imports.findall(page.read_text())}
    assert len(lines) > 8
    for line in lines - {"from scalewise.frameworks.tensorflow import Watch"}:  # It needs Keras.
        exec(line, {})


BY_DATA = ("parameters", "values", "where")
"""Fields of ``--json`` whose keys are names of laws' parameters, numbers of devices, settings."""


def keys(answer):
    """Return the name of every field of an answer, at any depth."""
    if isinstance(answer, list):
        return {key for item in answer for key in keys(item)}
    if not isinstance(answer, dict):
        return set()
    below = (keys(item) for key, item in answer.items() if key not in BY_DATA)
    return set(answer).union(*below)


@pytest.mark.parametrize("path", sorted((ROOT / "tests/answers").glob("*.json")), ids=named)
def test_every_field_of_an_answer_is_in_the_reference(path):
    reference = (DOCS / "reference/json.md").read_text()
    names = keys(json.loads(path.read_text()))
    assert [key for key in sorted(names) if not re.search(rf"[`\"]{key}[`\"]", reference)] == []


@pytest.mark.parametrize("name", ["folders/script", "folders/built-in"])
def test_the_reference_has_the_fields_of_a_summary(name):
    fields = summary_sections.values(api.summary(ROOT / "tests" / name))
    text = section("json.md", "## summary")
    assert fields and [key for key in sorted(fields) if f"`{key}`" not in text] == []
