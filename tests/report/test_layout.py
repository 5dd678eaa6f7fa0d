"""Lines fit the width: sentences are wrapped at words, tables drop columns or are split."""

import pytest

from scalewise.report.layout import lay_out
from scalewise.report.tables import Section, Table
from scalewise.report.wrap import wrap

SENTENCE = (
    "On 16 devices a step takes 5.466 [2.67, 11.19] ms, +257 % more than 1.2e-05 × 3 = 16 allow; "
    "see `scalewise explain runs/demo --price aws:p5.48xlarge:spot --all` (or 8 GiB of memory), "
    "add --full-run '90 epochs' to the hosts' commands, or to others'."
)
TABLE = Table(
    "Scaling",
    ("devices", "samples/s", "nodes", "efficiency", "serial fraction"),
    (("1", "1,024", "1", "100.0 %", "–"), ("2", "2,000", "1", "97.7 %", "2.4 %")),
    ("default", "default", "wide", "default", "all"),
)


def shown(width, *tables, brief=True):
    section = Section("a study", (), tables or (TABLE,))
    return [line.text for line in lay_out([section], width, brief=brief)]


@pytest.mark.parametrize("width", range(20, 120, 7))
def test_a_sentence_is_wrapped_between_words(width):
    lines = wrap(SENTENCE, width)
    assert " ".join(line.strip() for line in lines) == SENTENCE
    whole = (
        "16 devices",
        "5.466 [2.67, 11.19] ms,",
        "+257 %",
        "1.2e-05 × 3 = 16 allow;",
        "`scalewise explain runs/demo --price aws:p5.48xlarge:spot --all`",
        "8 GiB",
        "--full-run '90 epochs'",
    )
    for part in whole:
        assert any(part in line for line in lines)
    assert all(len(line) <= width or line.strip() in whole for line in lines)
    assert all(line.startswith("  ") for line in lines[1:])


def test_columns_of_a_line_stay_and_their_last_one_is_wrapped():
    line = "note  threads        OMP_NUM_THREADS is not set; 2 ranks on 2 cores"
    assert wrap(line, 50) == [
        "note  threads        OMP_NUM_THREADS is not set;",
        "                     2 ranks on 2 cores",
    ]


def test_a_line_that_is_a_command_is_not_wrapped():
    command = "  scalewise run study.toml --for efficiency=0.8 --max-cost 20 --price 2.50"
    assert wrap(command, 40) == [command]


def test_a_table_shows_its_default_columns_and_says_how_many_are_left_out():
    assert shown(100) == [
        "a study",
        "",
        "Scaling",
        "devices   samples/s   nodes   efficiency",
        "────────────────────────────────────────",
        "      1       1,024       1      100.0 %",
        "      2       2,000       1       97.7 %",
        "",
        "1 more column: --all",
    ]


def test_a_narrow_table_has_smaller_gaps_then_drops_columns_then_is_split():
    assert shown(38)[3] == "devices  samples/s  nodes  efficiency"
    assert shown(36)[3] == "devices   samples/s   efficiency"
    assert shown(36)[-1] == "2 more columns: --all"
    headers = [line for line in shown(24) if line.startswith("devices")]
    assert headers == ["devices  samples/s", "devices  efficiency"]


def test_all_columns_are_split_and_a_table_can_be_left_out_whole():
    headers = [line for line in shown(36, brief=False) if line.startswith("devices")]
    assert headers == ["devices  samples/s  nodes", "devices  efficiency  serial fraction"]
    more = Table("Hosts", ("host",), (("a",),), only_all=True)
    assert "Hosts" in shown(80, TABLE, more, brief=False)
    lines = shown(80, TABLE, more)
    assert "Hosts" not in lines and lines[-1] == "1 more column and 1 more table: --all"


def test_a_cell_that_is_too_long_is_wrapped_in_its_column():
    table = Table("Laws", ("law", "formula"), (("pmnf", "T(N) = 33.02 + 2.473 N^0.25 log2(N)"),))
    lines = shown(30, table)
    assert max(map(len, lines)) <= 30
    text = " ".join(" ".join(lines[5:]).split())
    assert text == "pmnf T(N) = 33.02 + 2.473 N^0.25 log2(N)"
