"""The command line: what each verb prints, where, and how it ends."""

import json
import os
import pty
import re
import shutil
import subprocess

import pytest

from commands import COMMAND, run_command, study_toml
from scalewise import api, results, study
from scalewise.cli import app, study_commands
from scalewise.errors import SpecError

VERBS = [
    "demo",
    "init",
    "plan",
    "run",
    "status",
    "cancel",
    "certify",
    "summary",
    "measure",
    "explain",
    "compare",
    "predict",
    "advise",
    "report",
    "import",
    "export",
    "port",
    "doctor",
    "catalog",
    "plugins",
]
GROUPS = {"data": ["make", "check", "bench"]}
NAME = """a "quoted" student's study"""
CSV = "devices,throughput,time\n1,240,556\n2,464,439\n4,892,380\n"
TORCH = {"framework": "torch", "workload": "mnist-cnn"}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A fake study with quotes in its name, run once: what was said, and where."""
    home = tmp_path_factory.mktemp("home of studies")
    (home / "study.toml").write_text(study_toml(name=NAME))
    ended = run_command("run", "study.toml", cwd=home)
    ended.folder = home / "runs" / NAME
    return ended


@pytest.fixture
def published(tmp_path):
    path = tmp_path / "published.csv"
    path.write_text(CSV)
    return path


def test_the_documented_verbs_are_there(scalewise):
    verbs = [command.name or command.callback.__name__ for command in app.registered_commands]
    assert verbs == VERBS
    groups = {each.name: each.typer_instance.registered_commands for each in app.registered_groups}
    told = {name: [each.callback.__name__ for each in verbs] for name, verbs in groups.items()}
    assert told == GROUPS
    code, out, _ = scalewise("--help")
    assert code == 0
    assert all(f"\n  {verb} " in out for verb in [*VERBS, *GROUPS])


def test_a_name_that_the_file_system_refuses_is_told_in_a_sentence(scalewise):
    code, out, err = scalewise("summary", 3000 * "y")
    assert (code, out) == (1, "")
    hint = " hint: choose a shorter path; a name has at most 255 bytes\n"
    assert err == f"error: '{79 * 'y'}…': File name too long\n{hint}"


def test_errors_spell_parameters_as_the_caller_does(scalewise, published):
    code, _, err = scalewise("advise", published, "--for", "time", "--where", "strategy=ddp")
    assert code == 1
    assert err.endswith(" hint: --where is for study folders\n")
    with pytest.raises(SpecError, match="holds one curve") as refused:
        results.curve_and_records(published, where={"strategy": "ddp"})
    assert refused.value.hint == "where= is for study folders"


def test_examples_are_those_of_the_caller(scalewise, published):
    assert scalewise("predict", published, "--at", "0")[2].endswith(" hint: for example --at 8\n")
    with pytest.raises(SpecError, match="must be from 1 to") as refused:
        api.predict(published, at=0)
    assert refused.value.hint == "for example at=[8]"


COMMANDS = [*VERBS, *(f"{group} {verb}" for group, verbs in GROUPS.items() for verb in verbs)]


@pytest.mark.parametrize("verb", COMMANDS)
def test_help_gives_examples_each_on_a_line_of_its_own(verb, scalewise):
    code, out, _ = scalewise(*verb.split(), "--help")
    examples = out.partition("\nExamples:\n")[2].partition("\n\n")[0].splitlines()
    assert code == 0
    assert examples
    assert all(line.startswith(f"  scalewise {verb}") and len(line) <= 80 for line in examples)


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("verb", ["", *GROUPS, *COMMANDS])
def test_help_fits_two_screens(verb, width, scalewise, monkeypatch):
    monkeypatch.setenv("COLUMNS", f"{width}")
    lines = scalewise(*verb.split(), "--help")[1].splitlines()
    assert len(lines) <= 2 * 24
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("verb", ["", *GROUPS, *COMMANDS])
def test_short_and_long_help_are_the_same(verb, scalewise):
    assert scalewise(*verb.split(), "-h") == scalewise(*verb.split(), "--help")


@pytest.mark.parametrize("group", ["", *GROUPS])
def test_every_summary_fits_on_one_line_of_80_columns(group, scalewise, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = scalewise(*group.split(), "--help")
    lines = [line for line in out.splitlines() if line.startswith("  ")]
    for verb in GROUPS.get(group, [*VERBS, *GROUPS]):
        (summary,) = [line for line in lines if line.startswith(f"  {verb} ")]
        assert summary.endswith((".", "…")) and not summary.endswith("...")
        assert len(summary) <= 80


@pytest.mark.parametrize("verb", ["", *GROUPS, *COMMANDS])
def test_help_shows_no_python_types(verb, scalewise):
    _, out, _ = scalewise(*verb.split(), "--help")
    assert not re.search(r"<|\bTEXT\b|\bINTEGER\b|\bPATH\b|list\[", out)


@pytest.mark.parametrize(
    ("verb", "panels"),
    [
        ("", ["Run a study", "Analyze the results", "Data and tools", "Options"]),
        ("run", ["Options", "Options for your own program (with --on)"]),
        ("predict", ["Options", "Which curve", "Simulation (with --simulate)"]),
        ("advise", ["Options", "Cost and energy", "Training target, queue and interruptions"]),
    ],
)
def test_help_groups_options_in_panels(verb, panels, scalewise):
    _, out, _ = scalewise(*verb.split(), "--help")
    places = [out.index(f"\n{panel}:\n") for panel in panels]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("shell", "variables"),
    [
        ("bash", {"COMP_WORDS": "scalewise pre", "COMP_CWORD": "1"}),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "scalewise pre"}),
        (
            "fish",
            {"_TYPER_COMPLETE_ARGS": "scalewise pre", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
        ),
    ],
)
def test_a_shell_completes_verbs(shell, variables, tmp_path):
    named = os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    script = run_command("--show-completion", shell, cwd=tmp_path, env=named)
    assert script.returncode == 0 and f"_SCALEWISE_COMPLETE=complete_{shell}" in script.stdout
    home = {"HOME": str(tmp_path)}
    assert (
        run_command("--install-completion", shell, cwd=tmp_path, env=named | home).returncode == 0
    )
    installed = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert any("_SCALEWISE_COMPLETE" in text for text in installed)
    asked = os.environ | variables | {"_SCALEWISE_COMPLETE": f"complete_{shell}"}
    done = run_command(cwd=tmp_path, env=asked)
    assert "predict" in done.stdout and "measure" not in done.stdout


def test_a_run_ends_with_its_folder_alone(done):
    assert done.returncode == 0
    *summary, folder = done.stdout.splitlines()
    assert folder == f"runs/{NAME}"
    assert any(line.startswith("Worth it? ") for line in summary)
    assert done.stderr.startswith("3 to run, 0 finished already\n[1/3] run ")
    assert "\x1b" not in done.stdout + done.stderr


def test_asking_twice_runs_once(done):
    home = done.folder.parent.parent
    again = run_command("run", "study.toml", cwd=home)
    assert (again.returncode, again.stdout.splitlines()[-1]) == (0, f"runs/{NAME}")
    assert again.stderr == "0 to run, 3 finished already\n"


def test_repeats_replace_those_of_a_study_file(tmp_path, monkeypatch, scalewise):
    (tmp_path / "study.toml").write_text(study_toml())
    specs = []
    monkeypatch.setattr(study_commands, "_run_study", lambda spec, *_, **__: specs.append(spec))
    monkeypatch.setattr(study_commands, "_print_summary", lambda folder: None)
    for options in ((), ("--repeats", 3)):
        assert scalewise("run", tmp_path / "study.toml", *options)[0] == 0
    assert [spec.repeats for spec in specs] == [1, 3]


def test_the_law_of_the_fake_machine_is_measured(done, scalewise):
    code, out, err = scalewise("measure", done.folder, "--json")
    assert (code, err) == (0, "")
    (curve,) = json.loads(out)["curves"]
    assert (curve["study"], curve["scaling"], curve["work"]) == (NAME, "weak", "20 steps")
    step = {1: 0.010, 2: 0.0121, 4: 0.0132}
    fixed = {1: 11.0, 2: 11.0, 4: 11.25}
    for point in curve["points"]:
        n = point["devices"]
        assert point["throughput"]["value"] == pytest.approx(8 * n / step[n], rel=1e-4)
        assert point["efficiency"]["value"] == pytest.approx(step[1] / step[n], rel=1e-4)
        assert point["time"]["value"] == pytest.approx(fixed[n] + 20 * step[n], rel=1e-4)
        assert sum(part["value"] for part in point["complete"].values()) == pytest.approx(
            point["time"]["value"]
        )


def test_a_csv_is_measured_in_words(published, scalewise):
    options = ("--scaling", "weak", "--devices-per-node", 2)
    code, out, err = scalewise("measure", published, *options)
    rows = [" ".join(line.split()) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert "weak scaling (batch per device fixed); work: taken as equal" in rows
    assert "2 1 464.0 1.933 96.7 % 93.3 %" in rows
    assert rows[-1].endswith("more columns: --all")
    _, out, _ = scalewise("measure", published, *options, "--all")
    rows = [" ".join(line.split()) for line in out.splitlines()]
    assert "2 1 464.0 232.0 480.0 1.933 96.7 % 93.3 % 224.0 3.4 %" in rows
    assert "4 2 892.0 223.0 960.0 3.717 92.9 % 92.2 % 428.0 2.5 %" in rows


def test_a_csv_and_a_study_stand_side_by_side(published, done, scalewise):
    code, out, _ = scalewise("measure", published, done.folder)
    assert code == 0
    assert f"{NAME}\nweak scaling (batch per device fixed); work: 20 steps\n" in out
    assert "Side by side\n" in out
    _, out, _ = scalewise("measure", published, done.folder, "--json")
    assert [curve["study"] for curve in json.loads(out)["curves"]] == ["published", NAME]


@pytest.mark.parametrize("ending", ["html", "md", "csv", "tex", "json", "txt", "png", "svg"])
def test_a_report_is_written_by_its_ending(ending, done, scalewise, tmp_path):
    before = sorted(done.folder.rglob("*"))
    assert scalewise("report", done.folder, "-o", f"r.{ending}") == (0, f"r.{ending}\n", "")
    assert (tmp_path / f"r.{ending}").stat().st_size > 500
    assert sorted(done.folder.rglob("*")) == before


def test_a_page_of_a_study_says_why(published, done, scalewise, tmp_path):
    assert scalewise("report", published, done.folder, "-o", "page.html")[0] == 0
    html = (tmp_path / "page.html").read_text()
    assert "What each cause adds to a step, in milliseconds" in html
    assert html.count("What holds it back?</h2>") == 1


def test_a_single_plot_of_several_sources_is_written(published, done, scalewise, tmp_path):
    words = ("report", published, done.folder, "-o", "e.png", "--plot", "efficiency")
    assert scalewise(*words) == (0, "e.png\n", "")
    assert (tmp_path / "e.png").read_bytes().startswith(b"\x89PNG")


def test_a_report_never_takes_the_place_of_a_record(done, scalewise, tmp_path):
    shutil.copytree(done.folder, tmp_path / "copy")
    code, _, err = scalewise("report", "copy", "-o", "copy/study.json")
    assert (tmp_path / "copy/study.json").read_bytes() == (done.folder / "study.json").read_bytes()
    assert code == 1
    assert err.startswith("error: copy/study.json")


def test_init_writes_a_study_and_never_over_another(scalewise, tmp_path):
    mine = tmp_path / "mine.toml"
    assert scalewise("init", "mine.toml") == (0, "mine.toml\n", "")
    assert study.load(mine).name == "mine"
    mine.write_text("precious")
    code, _, err = scalewise("init", "mine.toml")
    assert (code, mine.read_text()) == (1, "precious")
    assert err == ("error: mine.toml exists already\n hint: choose another name, or --force\n")
    assert scalewise("init", "mine.toml", "--force")[0] == 0
    assert study.load(mine).name == "mine"


def test_a_plan_starts_nothing(scalewise, tmp_path):
    (tmp_path / "s.toml").write_text(study_toml())
    code, out, err = scalewise("plan", "s.toml")
    assert (code, err) == (0, "")
    assert out.count(": to run\n") == 3
    assert out.count(" -m scalewise.frameworks train ") == 3
    assert f"3 runs, weak scaling, one after another, in {tmp_path}/runs/a study\n" in out
    assert out.splitlines()[-1].startswith("no cost estimate yet: run the smallest")
    assert [path.name for path in tmp_path.iterdir()] == ["s.toml"]


def test_status_says_where_every_run_is(done, scalewise, tmp_path):
    shutil.copytree(done.folder, tmp_path / "copy")
    assert scalewise("status", "copy")[1].count(": finished\n") == 3
    runs = json.loads(scalewise("status", "copy", "--json")[1])["runs"]
    shutil.rmtree(tmp_path / "copy" / runs[1]["id"])
    (tmp_path / "copy" / runs[2]["id"] / "outcome.json").unlink()
    code, out, _ = scalewise("status", "copy", "--json")
    found = {run["topology"]: run["phase"] for run in json.loads(out)["runs"]}
    assert (code, found) == (3, {"1x1": "finished", "1x2": "missing", "1x4": "failed"})
    assert "! 2 of 3 runs are not finished" in scalewise("measure", "copy")[1]


def test_an_answer_names_the_outcome_that_it_cannot_read(done, scalewise, tmp_path):
    shutil.copytree(done.folder, tmp_path / "copy")
    runs = json.loads(scalewise("status", "copy", "--json")[1])["runs"]
    for run, text in zip(runs[1:], ("rubbish", '{"schema": 1}'), strict=True):
        (tmp_path / "copy" / run["id"] / "outcome.json").write_text(text)
    code, out, _ = scalewise("status", "copy", "--json")
    causes = {run["topology"]: run["cause"] for run in json.loads(out)["runs"]}
    assert code == 3 and not causes["1x1"]
    assert f"{runs[1]['id']}/outcome.json is damaged" in causes["1x2"]
    assert "it has no attempt; `scalewise run` closes the run anew" in causes["1x4"]
    assert f"{runs[2]['id']}/outcome.json is damaged" in scalewise("measure", "copy", "--json")[1]
    code, _, err = scalewise("predict", "copy", "--at", "16")
    assert code == 1
    assert "needs 2 device counts, got 1; left out: " in err
    assert f"{runs[1]['id']}/outcome.json is damaged" in err
    assert "hint: `scalewise run` closes the run anew" in err
    code, _, err = scalewise("advise", "copy", "--for", "time")
    assert (code, "got 1; left out: " in err) == (1, True)


def test_an_explanation_names_the_job_whose_attempts_it_cannot_count(done, scalewise, tmp_path):
    shutil.copytree(done.folder, tmp_path / "copy")
    job = next((tmp_path / "copy").glob("*/job.json"))
    job.write_text(job.read_text().replace('"world": ', '"world": 1'))
    (explanation,) = json.loads(scalewise("explain", "copy", "--json")[1])["curves"]
    (doubt,) = [each for each in explanation["doubts"] if each["code"] == "attempts-unread"]
    assert (
        "device-hours of failed attempts" in doubt["text"] and str(job.parent.name) in doubt["text"]
    )


def test_status_names_a_rank_file_that_it_cannot_read(done, scalewise, tmp_path):
    shutil.copytree(done.folder, tmp_path / "copy")
    rank = next((tmp_path / "copy").glob("*/rank-00000.jsonl"))
    rank.write_text("")
    code, out, _ = scalewise("status", "copy")
    assert code == 0 and f"{rank.parent.name}/rank-00000.jsonl is missing or damaged" in out


def test_a_planned_study_measures_nothing_yet(done, scalewise, tmp_path):
    (tmp_path / "new").mkdir()
    shutil.copy(done.folder / "study.json", tmp_path / "new")
    assert scalewise("status", "new")[1].count(": missing\n") == 3
    code, _, err = scalewise("measure", "new")
    assert (code, err.splitlines()[0]) == (1, f"error: {NAME} has no finished run")


def test_a_study_and_a_table_are_predicted(done, published, scalewise, tmp_path):
    words = ["--at", "8,16", "--devices-per-node", "4"]
    code, out, err = scalewise("predict", done.folder, *words, "-o", "p.png")
    assert (code, err) == (0, "")
    assert "Data from one node cannot show the network between nodes" in out
    assert out.splitlines()[-1] == "p.png" and (tmp_path / "p.png").exists()
    code, out, _ = scalewise("predict", published, *words, "--scaling", "weak", "--json")
    told = json.loads(out)
    assert [point["devices"] for point in told["points"]] == [8, 16]
    assert told["next"]["says"].startswith("Measure 8 devices (2 nodes) next, the first across")
    code, out, _ = scalewise("predict", published, "--at", "4,8", "--scaling", "weak")
    answer, *_, table = out.partition("Held out")
    assert code == 0
    assert answer.splitlines()[1].startswith("On 4 devices, predicted from 1 to 2: ")
    assert "measured: 892; error " in answer and "\nOn 8 devices: " in answer
    assert "the interval" in table


def test_a_study_and_a_table_are_advised_on(done, published, scalewise):
    code, out, err = scalewise("advise", done.folder, "--for", "time", "--devices-per-node", "4")
    assert (code, err) == (0, "")
    assert "the fastest of 1 to 4 devices" in out
    assert "More than 4 devices were not measured: --up-to 8 predicts them." in out
    code, out, _ = scalewise("advise", published, "--for", "time", "--up-to", "16", "--json")
    told = json.loads(out)
    assert (code, told["devices"], told["beyond"]["devices"]) == (0, 4, 16)
    words = ["--for", "deadline=400s", "--for", "cost=2", "--price", "2.5", "--json"]
    code, out, _ = scalewise("advise", published, *words, "--devices-per-node", "4")
    told = json.loads(out)
    assert (code, told["devices"], told["topology"]) == (0, 4, "1x4")
    code, out, _ = scalewise("advise", published, "--for", "deadline=1s", "--at", "8")
    assert code == 0
    assert "No measured scale of 1 to 4 devices meets deadline=1s; the closest is 4 devices" in out
    assert "Predicted: no number of devices up to 8 meets it either." in out


def test_advice_is_taken_to_a_target_through_a_queue_and_interruptions(done, published, scalewise):
    words = ["--for", "time", "--scaling", "weak", "--batch", "64", "--critical-batch", "4000",
             "--target", "samples=1e6 at 64", "--wait", "1=1min,4=5min",
             "--interrupted-every", "12h", "--save", "30s", "--restart", "3min",
             "--worth", "8", "--runs", "8"]  # fmt: skip
    code, out, err = scalewise("advise", published, *words, "--json")
    told = json.loads(out)
    assert (code, err) == (0, "")
    scale = told["scales"][0]
    assert scale["target"]["batch"] == 64 and scale["wait"] == 60
    assert scale["interrupted"]["lost"]["value"] > 0
    assert (told["worth"]["devices"], told["runs"]["count"]) == (8, 8)
    code, out, _ = scalewise("advise", published, *words)
    assert code == 0
    assert "s to target" in out and "8 runs, done soonest" in out
    code, _, err = scalewise("advise", done.folder, "--for", "time", "--target", "loss=2")
    assert (code, err.count("error: ")) == (1, 1)
    assert "no run recorded its loss" in err


def test_plugins_are_listed_with_their_home(scalewise):
    code, out, _ = scalewise("plugins")
    assert code == 0
    assert ["frameworks", "fake", "scalewise", "scalewise.frameworks.fake:Fake"] in [
        line.split() for line in out.splitlines()
    ]
    _, out, _ = scalewise("plugins", "--json")
    assert {"launchers", "frameworks", "strategies", "workloads", "libraries", "laws"} == {
        part["kind"] for part in json.loads(out)["plugins"]
    }


BAD_STUDIES = {
    "broken": ("name = a study", "s.toml is not TOML", "text needs quotes"),
    "no text": (b"\xff\xfe", "s.toml is not text", "UTF-8"),
    "unknown key": (study_toml(bacth=8), "no key 'bacth'", "did you mean 'batch'?"),
    "wrong type": (study_toml(batch="8"), "batch must be a whole number", "batch = 1"),
    "no topology": (study_toml(["two"]), "not a topology: 'two'", "for example 2x8"),
    "small topology": (study_toml(["0x2"]), "at least 1x1, got '0x2'", ""),
    "ragged batch": (study_toml(global_batch=10), "10 does not divide", "global_batch = 8"),
    "no data": (study_toml(**TORCH, data="nowhere"), "no data nowhere", "MNIST's idx"),
    "no workload": (study_toml(framework="torch"), "needs a workload", "mlp, mnist-cnn"),
    "framework": (study_toml(framework="fkae"), "no framework named 'fkae'", "'fake'"),
    "option": (study_toml(options={}) + '"options.compte" = [1]', "no key 'compte'", "'compute'"),
    "launcher": (study_toml() + '[launcher]\nname = "locl"', "launcher named 'locl'", "'local'"),
    "date": (study_toml() + '"options.since" = [2020-01-01]', "2020", ""),
}


def assert_told(ended, said, hint):
    """The problem in one line, the way out in another, and nothing else."""
    code, out, err = ended
    first, *rest = err.splitlines()
    assert (code, out) == (1, "")
    assert first.startswith("error: ")
    assert said in first
    assert len(rest) <= 1
    assert hint in "".join(rest)
    assert all(line.startswith(" hint: ") for line in rest)


@pytest.mark.parametrize("bad", BAD_STUDIES)
def test_a_bad_study_is_told_in_a_sentence(bad, scalewise, tmp_path):
    text, said, hint = BAD_STUDIES[bad]
    (tmp_path / "s.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    assert_told(scalewise("plan", "s.toml"), said, hint)


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        ("plan nowhere.toml", "no study file nowhere.toml", "scalewise init"),
        ("run nowhere.toml", "no study file nowhere.toml", "scalewise init"),
        ("plan folder", "cannot read folder: it is a folder", ""),
        ("measure nowhere", "nowhere does not exist", "`scalewise run` printed"),
        ("measure folder", "folder is not a study's folder", "`scalewise run` printed"),
        ("status folder", "folder is not a study's folder", "`scalewise run` printed"),
        ("measure newer", "newer/study.json has schema 2", "upgrade scalewise"),
        ("measure damaged", "damaged/study.json is damaged", "run the study again"),
        ("measure nan.csv", "nan.csv, line 3: throughput must be a number above 0, got 'nan'", ""),
        ("measure binary.csv", "cannot read binary.csv", ""),
        ("measure a.csv --scaling wek", "'wek'", ""),
        ("report a.csv -o a.csv/r.html", "cannot write a.csv/r.html", "another folder"),
        ("report a.csv -o a.csv/r.png", "cannot write a.csv/r.png", "another folder"),
        ("report a.csv -o a.csv", "a.csv would overwrite the records", "another -o"),
        ("report a.csv -o r.gif", "r.gif: unknown ending", ".html"),
        ("report a.csv -o r.png --plot tmie", "no plot 'tmie'", "'time'"),
        ("report a.csv -o r.png --plot epoch", "no data was measured for plot 'epoch'", ""),
        ("predict nowhere --at 8", "nowhere does not exist", "`scalewise run` printed"),
        ("predict one.csv --at 8", "a prediction needs 2 device counts, got 1", "measure one more"),
        ("predict empty.csv --at 8", "empty.csv is empty", "devices,throughput"),
        ("predict head.csv --at 8", "head.csv has a header and no rows", "devices,throughput"),
        ("predict words.csv --at 8", "throughput must be a number above 0, got 'fast'", "empty"),
        ("predict nan.csv --at 8", "throughput must be a number above 0, got 'nan'", "empty"),
        ("predict minus.csv --at 8", "throughput must be a number above 0, got '-2'", "empty"),
        ("predict falling.csv --at 8", "line 3: 1 devices come after 2", "sort the rows"),
        ("predict binary.csv --at 8", "cannot read binary.csv", ""),
        ("predict a.csv --at 2", "2 devices cannot be checked", "predict a larger number"),
        ("predict a.csv --at 0", "must be from 1 to", "--at 8"),
        ("predict a.csv --at eight", "--at takes whole numbers of devices, got 'eight'", "--at 8"),
        ("predict a.csv --at 8,", "--at takes whole numbers of devices, got '8,'", "--at 8"),
        ("predict a.csv --at -8", "--at takes whole numbers of devices, got '-8'", "--at 8"),
        ("predict a.csv --at 99999999999", "from 1 to", "--at 8"),
        ("predict a.csv --at 8 --scaling wek", "'wek'", ""),
        ("predict a.csv --at 8 --where x", "--where takes KEY=VALUE, got 'x'", "strategy=fsdp"),
        ("predict a.csv --at 8 --where x=1", "a.csv holds one curve", "folders"),
        (
            "advise one.csv --for time",
            "advice needs measurements on 2 numbers of devices, got 1",
            "measure one",
        ),
        ("advise nan.csv --for time", "throughput must be a number above 0, got 'nan'", "empty"),
        ("advise a.csv --for fastest", "not a purpose: 'fastest'", "deadline=2h"),
        ("advise a.csv --for deadline=-1h", "deadline must be above 0", "deadline=2h"),
        ("advise a.csv --for cost=5", "cost=5 needs the price of one device", "--price 2.5"),
        ("advise a.csv --for cost=5 --price nan", "price must be a number above 0", "price = 2.5"),
        ("advise a.csv --for cost=5 --price aws:p5", "or a name of the price list", "aws:p5.4"),
        ("advise a.csv --for energy=5", "energy must be a number with J, Wh, kWh, MWh", "40kWh"),
        ("advise a.csv --for time --watts 0", "watts must be a number above 0, got 0", "700"),
        ("advise a.csv --for time --device abacus", "no device named 'abacus'", "catalog devices"),
        ("catalog prices abacus", "nothing in the catalog fits 'prices abacus'", "leave a word"),
        ("advise a.csv --for time --at 3", "3 devices are fewer than the 4 that", "measure 3"),
        ("advise a.csv --for time --up-to 2", "--up-to 2 is below the 4 devices", "8 or more"),
        ("predict a.csv --at 8 -o p.doc", "p.doc: unknown ending", ".png .svg"),
        ("init a.csv/s.toml", "cannot write a.csv/s.toml", "another folder"),
        ("run s.toml -o a.csv/runs", "cannot write", "another folder"),
    ],
)
def test_bad_input_is_told_in_a_sentence(words, said, hint, scalewise, tmp_path):
    for name, text in {
        "a.csv": CSV.encode(),
        "nan.csv": b"devices,throughput\n1,240\n2,nan\n",
        "one.csv": b"devices,throughput\n1,240\n",
        "empty.csv": b"",
        "head.csv": b"devices,throughput\n",
        "words.csv": b"devices,throughput\n1,240\n2,fast\n",
        "minus.csv": b"devices,throughput\n1,240\n2,-2\n",
        "falling.csv": b"devices,throughput\n2,464\n1,240\n",
        "binary.csv": b"\x89PNG\r\n\xff",
        "newer/study.json": b'{"schema": 2}',
        "damaged/study.json": b'{"schema": 1',
        "folder/other": b"",
        "s.toml": study_toml().encode(),
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(text)
    assert_told(scalewise(*words.split()), said, hint)


@pytest.mark.parametrize(
    "words", ["", "measure", "mesure x", "measure x --jsno", "measure x --devices-per-node 0"]
)
def test_a_usage_error_ends_with_two(words, scalewise):
    code, out, err = scalewise(*words.split())
    assert code == 2
    assert "Usage: " in out + err


def test_a_program_without_its_dashes_is_told_of_them(tmp_path):
    (tmp_path / "train.py").touch()
    done = run_command("run", "--on", "2", "train.py", "--epochs", "1", cwd=tmp_path)
    assert done.returncode == 2
    assert "hint: put -- before your program" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("explain train.py", "train.py is not a study folder"),
        ("measure train.py", "train.py is neither a study's folder nor a table"),
        ("plan train.py", "hint: your own script: scalewise run --on 1,2 -- train.py"),
    ],
)
def test_a_script_where_a_study_is_wanted_is_told_apart(words, said, tmp_path):
    (tmp_path / "train.py").write_text("import argparse\n")
    done = run_command(*words.split(), cwd=tmp_path)
    assert done.returncode == 1 and said in done.stderr


def test_the_command_in_a_shell_tells_no_traceback_unless_asked(tmp_path):
    argv = [COMMAND, "measure", "nowhere"]
    plain = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (plain.returncode, plain.stdout) == (1, "")
    assert plain.stderr.startswith("error: nowhere does not exist\n hint: ")
    assert "Traceback" not in plain.stderr
    debug = run_command("measure", "nowhere", "--debug", cwd=tmp_path)
    assert (debug.returncode, debug.stdout) == (1, "")
    assert "Traceback" in debug.stderr


def on_a_terminal(*words, **env):
    """Return what a command prints on a terminal."""
    mine, its = pty.openpty()
    kept = {key: os.environ[key] for key in os.environ.keys() - {"NO_COLOR", "FORCE_COLOR"}}
    settings = {**kept, "TERM": "xterm-256color", "COLUMNS": "160", **env}
    with subprocess.Popen([COMMAND, *map(str, words)], stdout=its, env=settings) as process:
        os.close(its)
        found = b""
        try:
            while part := os.read(mine, 65536):
                found += part
        except OSError:  # Linux says so at the end of a terminal.
            pass
        os.close(mine)
    assert process.returncode == 0
    return found.decode()


def test_a_terminal_gets_colour_and_nothing_else_does(published, tmp_path):
    assert "\x1b[1m" in on_a_terminal("measure", published)
    done = run_command("measure", published, cwd=tmp_path)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout + done.stderr


def test_a_terminal_that_wants_no_colour_gets_no_escape_codes(published):
    assert "\x1b" not in on_a_terminal("measure", published, NO_COLOR="1")
