"""Values, files and names far outside of what is usual are refused in a short sentence."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalewise.analysis.measure import curve_from_csv
from scalewise.analysis.measure.table_layout import MAX_LINE_LENGTH, MAX_LINES
from scalewise.analysis.measure.table_numbers import MAX_VALUE, MIN_VALUE
from scalewise.errors import MAX_MESSAGE, SpecError, shown
from scalewise.results import TABLE_LIMIT
from scalewise.spec import RunSpec, StudySpec
from scalewise.user_config import CONFIG_LIMIT, parse_toml

Give = Callable[..., tuple[object, str, str]]
LONG = "x" * 5000


@pytest.mark.parametrize("value", [LONG, 10**400, [1] * 999, {"a": LONG}, LONG.encode()])
def test_a_long_value_is_cut_in_a_message(value: object) -> None:
    with pytest.raises(SpecError) as problem:
        StudySpec.from_dict(
            {"name": "a", "run": {"batch": value, "steps": 1}, "vary": {"topology": [1]}}
        )
    assert len(str(problem.value)) < 200
    assert "batch must be a whole number" in str(problem.value)


def test_no_message_is_longer_than_a_screen() -> None:
    assert len(str(SpecError(LONG, hint=LONG))) == len(SpecError(LONG, hint=LONG).hint) == 1000
    assert MAX_MESSAGE == 1000


@pytest.mark.parametrize(
    "arguments",
    [
        ["measure", "t.csv", "--devices-per-node", "9" * 300],
        ["measure", "t.csv", f"--{LONG}"],
        [LONG],
        ["summary", "t.csv", "--full-run", LONG],
        ["summary", LONG],
        ["predict", "t.csv", "--at", f"1,{LONG}"],
        ["measure", "t.csv", "\x1b[31m" * 50],
    ],
)
def test_a_long_word_of_a_command_is_cut(
    scalewise: Give, arguments: list[str], tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("devices,throughput\n1,10\n2,19\n")
    code, _, err = scalewise(*arguments)
    assert code in (1, 2)
    assert "rror: " in err and "\x1b" not in err
    assert max(map(len, err.splitlines())) < 500


@pytest.mark.parametrize(
    "arguments",
    [
        ["summary", "thing"], ["plan", "thing"], ["import", "4=thing"], ["port", "thing"],
        ["run", "--on", "1", "--", "thing.py"], ["predict", "runs", "--at", "8", "--simulate",
         "--collectives", "thing"],
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["pipe", "device", "large"])
def test_a_file_that_is_none_or_has_no_end_is_refused(
    scalewise: Give, kind: str, arguments: list[str], tmp_path: Path
) -> None:
    path = tmp_path / next(word for word in arguments if "thing" in word).removeprefix("4=")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as file:
            file.truncate(200 * 2**20)
    code, out, err = scalewise(*arguments)
    assert (code, out) == (1, "")
    assert "thing" in err and " hint: " in err


def test_configuration_that_is_nested_too_deeply_is_no_toml() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_toml(b"a = " + b"[" * 5000)


CELLS = st.one_of(
    st.floats().map(repr),
    st.integers().map(str),
    st.sampled_from(["1e-308", "1e999", "9" * 400, "1e100", "-0", "", "OOM", "1k", "2x4"]),
    st.sampled_from(["5 ± 1e400", "1 [2, 0]", "1e300k", "99:99:99"]),
    st.text(max_size=12),
)  # fmt: skip


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=5))
def test_any_cells_make_a_curve_or_are_refused(rows: list[tuple[str, str]]) -> None:
    text = "devices,throughput\n" + "".join(f"{devices},{rate}\n" for devices, rate in rows)
    points = []
    with suppress(SpecError):  # Any other error fails the test.
        points = list(curve_from_csv(text, name="t").points)
    for point in points:
        assert point.throughput and 0 < point.throughput.value < 1e200


def test_a_value_is_shown_as_python_writes_it() -> None:
    assert shown("it's") == '"it\'s"'
    assert shown(10**5000) == "a number of thousands of digits"


def test_the_page_on_security_states_the_limits() -> None:
    page = (Path(__file__).parents[1] / "docs/reference/security.md").read_text()
    assert (TABLE_LIMIT, CONFIG_LIMIT) == (4 << 20, 1 << 20)
    for limit in ("4 MiB", "1 MiB", f"{MAX_LINES:,} lines", f"{MAX_LINE_LENGTH:,} characters"):
        assert limit in page
    assert f"from {MIN_VALUE:g} to {MAX_VALUE:g}" in page


def test_what_no_process_can_be_given_is_refused() -> None:
    for text in ("a\0b", "a\ud800b"):
        for run in ({"env": {"A": text}}, {"program": ["train", text]}):
            with pytest.raises(SpecError, match="cannot hold"):
                RunSpec.from_dict({"topology": "1x1", "batch": 1, "steps": 1, **run})
    RunSpec.from_dict({"topology": "1x1", "program": ["train", "any-byte\udcff"]})


def test_a_path_of_any_bytes_is_printed_as_it_is(scalewise: Give, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("devices,throughput\n1,10\n2,19\n")
    name = "bad\udcff.md"
    code, _, err = scalewise("report", "t.csv", "-o", name)
    assert (code, err) == (0, "")
    assert (tmp_path / name).exists()


def test_links_that_lead_to_each_other_are_told(scalewise: Give, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("devices,throughput\n1,10\n2,19\n")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    code, _, err = scalewise("report", "t.csv", "-o", "loop")
    assert code == 1
    assert "loop" in err and " hint: " in err
