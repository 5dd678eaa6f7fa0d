"""``report --as``: which format is written, and what is refused in one sentence."""

import json
from types import SimpleNamespace

import pytest

from scalewise.report import interchange

TABLE = "devices,throughput\n1,100\n2,190\n4,350\n"


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(TABLE)
    return path


@pytest.mark.parametrize(
    ("name", "first"),
    [("t.prom", "# TYPE scalewise_throughput gauge"), ("t.openmetrics", "# TYPE"),
     ("t.JSONL", '{"params": {"devices": 1}'), ("t.mllog", ":::MLLOG {")],
)  # fmt: skip
def test_the_ending_says_the_format(scalewise, table, tmp_path, name, first):
    code, out, _ = scalewise("report", table, "-o", tmp_path / "new" / name)
    assert (code, out.strip()) == (0, str(tmp_path / "new" / name))
    assert (tmp_path / "new" / name).read_text().startswith(first)


def test_a_format_may_be_written_to_a_file_of_any_name(scalewise, table, tmp_path):
    code, *_ = scalewise("report", table, "--as", "extrap", "-o", tmp_path / "result.txt")
    lines = (tmp_path / "result.txt").read_text().splitlines()
    assert code == 0
    assert {json.loads(line)["params"]["devices"] for line in lines} == {1, 2, 4}


def test_every_format_is_in_the_help(scalewise):
    _, out, _ = scalewise("report", "--help")
    assert all(name in out for name in interchange.FORMATS)


@pytest.mark.parametrize(
    ("options", "said", "hint"),
    [
        (["--as", "tensorbord", "-o", "x"], "unknown format: 'tensorbord'", "'tensorboard'"),
        (["--as", "xls", "-o", "x"], "unknown format: 'xls'", "--as takes tensorboard, mlflow"),
        (["--as", "mllog"], "mllog needs the file to write", "-o study.mllog"),
        (["--as", "mllog", "-o", "."], ". is a folder, but mllog is one file", "another -o"),
        (["-o", "x.prom", "--plot", "speedup"], "openmetrics has no plots", "--plot is for"),
        (["--as", "extrap", "-o", "table.csv"], "would overwrite the records", "another -o"),
    ],
)
def test_what_cannot_be_written_is_refused_with_a_hint(scalewise, table, options, said, hint):
    code, out, err = scalewise("report", table, *options)
    assert (code, out) == (1, "")
    assert said in err and hint in err and "Traceback" not in err


@pytest.mark.parametrize(("name", "package"), [("tensorboard", "tensorboard"), ("wandb", "wandb"),
                                               ("mlflow", "mlflow-skinny")])  # fmt: skip
def test_a_missing_package_is_named_before_anything_is_read(
    scalewise, tmp_path, monkeypatch, name, package
):
    monkeypatch.setattr(interchange, "find_spec", lambda name: None)
    code, _, err = scalewise("report", tmp_path / "no-such-study", "--as", name, "-o", "out")
    assert code == 1 and "is not installed" in err and f"pip install {package}" in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_a_folder_format_does_not_write_over_a_file_or_a_study(
    scalewise, table, tmp_path, monkeypatch, name
):
    monkeypatch.setattr(interchange, "find_spec", lambda name: object())
    (tmp_path / "runs" / "study" / "run").mkdir(parents=True)
    (tmp_path / "runs" / "study" / "study.json").touch()
    (tmp_path / "runs" / "study" / "run" / "spec.json").touch()
    (tmp_path / "file").touch()
    for output in ("runs", "runs/study", "runs/study/run", "file"):
        code, _, err = scalewise("report", table, "--as", name, "-o", tmp_path / output)
        assert code == 1 and f"is not a folder for {name}" in err


def test_an_error_of_a_package_is_one_sentence(scalewise, table, monkeypatch):
    def fail(curves, path):
        raise RuntimeError("the store is damaged\nand more")

    monkeypatch.setattr(interchange, "find_spec", lambda name: object())
    monkeypatch.setattr(interchange, "import_module", lambda name: SimpleNamespace(write=fail))
    code, _, err = scalewise("report", table, "--as", "mlflow", "-o", "store")
    assert code == 1 and "mlflow cannot write store: the store is damaged\n" in err
    assert "pip install --upgrade mlflow-skinny" in err
