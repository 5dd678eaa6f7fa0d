"""The shape of the package: what may be loaded when, and what help costs."""

import ast
import re
import resource
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import scalewise
from commands import COMMAND, modules_after
from scalewise import errors
from scalewise.cli import app
from scalewise.launch import worker_zip

HEAVY = {"torch", "tensorflow", "jax", "horovod", "deepspeed", "matplotlib", "scipy", "sklearn"}


@pytest.mark.parametrize("words", [["--help"], ["import"], ["report", "--nope"], ["nosuch"]])
def test_help_and_wrong_usage_are_light(words):
    loaded = modules_after(
        f"from scalewise.cli import app\ntry: app({words})\nexcept SystemExit: pass"
    )
    assert not loaded & (HEAVY | {"numpy", "rich", "psutil", "pydantic"})


def test_reading_a_study_needs_no_engine():
    assert not modules_after("import scalewise.study, scalewise.report.page") & (
        HEAVY - {"scipy", "matplotlib"}
    )


def test_importing_the_package_does_nothing():
    assert not modules_after("import scalewise") & (HEAVY | {"numpy", "typer"})


def test_the_worker_needs_the_standard_library_alone():
    loaded = modules_after(
        "import scalewise.frameworks.__main__, scalewise.frameworks.torch, "
        "scalewise.frameworks.fake, scalewise.frameworks.jax, scalewise.record.close"
    )
    third_party = loaded - set(sys.stdlib_module_names) - {"scalewise", "__main__"}
    assert not {name for name in third_party if not name.startswith(("_", "sitecustomize"))}


@pytest.mark.parametrize(
    ("run", "light"),
    [
        ({"workload": "mlp"}, True),
        ({"workload": "vit-h14", "compile": "blocks"}, True),
        ({"workload": "vit-b16", "options": {"bucket_mb": 5}}, False),
        ({"workload": "vit"}, False),
    ],
)
def test_a_plain_run_is_checked_without_its_engine(run, light):
    run |= {"topology": "1x1", "data": "synthetic:64x224x224x3", "batch": 8, "epochs": 1}
    loaded = modules_after(
        "from scalewise.frameworks.torch import Torch\nfrom scalewise.spec import RunSpec\n"
        f"Torch().check(RunSpec.from_dict({run!r}))"
    )
    assert ("torch" not in loaded) == light


def test_nothing_reads_the_variables_of_a_frame():
    """Before Python 3.13 that overwrites the dict which a script got from ``locals()``."""
    sources = list(Path(scalewise.__file__).parent.rglob("*.py"))
    assert sources
    assert [path.name for path in sources if "f_locals" in path.read_text()] == []


def test_errors_of_shared_code_name_no_option_of_the_command_line():
    """A caller from Python has no options: ``errors.parameter`` spells a name for both."""
    commands = typer.main.get_command(app).commands.values()
    options = {name for command in commands for param in command.params for name in param.opts}
    names = "|".join(name for name in options if name.startswith("--"))
    option = re.compile(rf"(?<![\w-])({names})(?![\w-])")
    source = Path(scalewise.__file__).parent
    named = []
    for path in source.rglob("*.py"):
        if path.relative_to(source).parts[0] in ("cli", "frameworks"):
            continue  # The worker's verbs answer to the command line alone.
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") in vars(errors):
                text = ast.unparse(call)
                # A complete command is the same for every caller.
                named += [text] if option.search(text) and "scalewise " not in text else []
    assert named == []


def cpu_seconds(argv: list[str]) -> float:
    """Return the processor time of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_costs_at_most_ten_times_bare_python():
    bare, asked = [], []
    for _ in range(15):  # In turn, so that a busy moment meets both.
        bare.append(cpu_seconds([sys.executable, "-c", "pass"]))
        asked.append(cpu_seconds([str(COMMAND), "--help"]))
    assert statistics.median(asked) <= 10 * statistics.median(bare)


def test_the_parcel_holds_everything_that_a_worker_imports(tmp_path):
    path = worker_zip.pack(tmp_path)
    modules = "scalewise.frameworks.torch.session, scalewise.watch.torch.hooks"
    code = (
        f"import sys; sys.path[:0] = [{str(path)!r}]; import {modules}; print(scalewise.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.startswith(str(path)), done.stderr
