"""Evidence for a proposal: its tables, its request and its doubts, as PDF and as LaTeX."""

import re
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest

from builders import a_study
from fake_study import a_watched_folder, play_all
from paths import ROOT
from scalewise import results
from scalewise.analysis.cost.rates import price_of
from scalewise.record.write import write_json
from scalewise.report import document_pdf
from scalewise.report.curve_report import curve_reports
from scalewise.report.document import Box, Commands, Heading, Items, Paragraph
from scalewise.report.document_latex import latex, tex
from scalewise.report.evidence import evidence
from scalewise.report.figures import Figure
from scalewise.report.method_tables import report_command
from scalewise.report.tables import Table
from scalewise.spec import FullRun

TABLE = ROOT / "studies" / "published" / "vit-h14-tiny-224.csv"
LAW = {"compute": 2e-3, "ring": 2e-3, "network": 6e-3, "noise": 0.01}


def a_folder(path, scaling):
    """Play a study on one and two nodes, each number of devices twice."""
    batch = {"weak": {"batch": 64}, "strong": {"global_batch": 256}}[scaling]
    study = a_study(
        options=LAW, epochs=2, data="synthetic:8192", topologies=["1x1", "1x2", "2x2"],
        repeats=2, scaling=scaling, name=f"study {scaling}", **batch,
    )  # fmt: skip
    write_json(path / "study.json", {"schema": 1, **study.to_dict()})
    with redirect_stdout(StringIO()):
        list(play_all(study, path))
    return path


def document_of(*paths, request=None, full_run=None):
    length = FullRun.parse(full_run) if full_run else None
    return evidence(curve_reports(results.all_explained(paths, full_run=length)), request)


def text_of(document):
    """Return all texts of a document, in the order of reading."""
    parts = []
    for block in document.blocks:
        match block:
            case Heading() | Paragraph():
                parts.append(block.text)
            case Items():
                parts += block.texts
            case Box():
                parts += [block.title, *map(" ".join, block.answers)]
            case Commands():
                parts += block.lines
            case Table():
                parts += [block.title, *map("|".join, (block.header, *block.rows))]
            case Figure():
                parts.append(block.title)
    return "\n".join(parts)


def box_of(document):
    """Return the box with which a document begins, below its first heading."""
    heading, box = document.blocks[:2]
    assert heading.text == "Summary" and isinstance(box, Box)
    return box


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("studies")
    return [a_folder(root / scaling, scaling) for scaling in ("weak", "strong")]


def test_strong_and_weak_studies_are_sorted_into_their_sections(folders):
    document = document_of(*folders, full_run="90 epochs")
    headings = [block.text for block in document.blocks if isinstance(block, Heading)]
    assert headings == [
        "Summary", "Test case", "Strong scaling", "Weak scaling",
        "Requested scale and its justification", "Method of measurement", "Hardware and software",
        "Doubts and limits", "How to reproduce this",
    ]  # fmt: skip
    text = text_of(document)
    strong, weak = text.index("Strong scaling"), text.index("Weak scaling")
    assert strong < text.index("study strong: speedup") < weak < text.index("study weak: speedup")
    assert "devices|nodes|runs|samples/s|±|speedup|efficiency" in text
    assert "time min|±|speedup|efficiency|device-hours|node-hours" in text
    assert "Each number of devices was measured 2 times" in text
    assert "Warm-up is excluded from rates: first epoch." in text
    assert "hosts|node-0 and node-1" in text and "Times are for the full run of 90 epochs" in text
    assert "--evidence --full-run '90 epochs' -o evidence.pdf" in text
    names = [block.name for block in document.blocks if isinstance(block, Figure)]
    assert names == ["strong-throughput", "strong-efficiency", "weak-throughput", "weak-efficiency"]


def test_hours_of_a_request_are_devices_times_time(folders):
    document = document_of(folders[1], request=4, full_run="90 epochs")
    (table,) = (b for b in document.blocks if isinstance(b, Table) and "time of the" in b.title)
    row = dict(zip(table.header, table.rows[-1]))
    assert (row["devices"], row["nodes"]) == ("4", "2")
    minutes = float(row["time min"])
    assert float(row["device-hours"]) == pytest.approx(4 * minutes / 60, rel=1e-3)
    assert float(row["node-hours"]) == pytest.approx(2 * minutes / 60, rel=1e-3)
    text = text_of(document)
    assert "4 devices on 2 nodes. One run (the full run of 90 epochs) takes" in text
    assert "4 devices were measured" in text and "Weak scaling was not measured." in text


def test_a_request_beyond_the_data_is_said_to_be_extrapolated():
    text = text_of(document_of(TABLE, request=64))
    assert "64 devices were not measured: the values are extrapolated from at most 32" in text
    assert "by a factor of 2" in text and "a run on 64 devices would replace it" in text
    assert "The measurements suggest 4 devices" in text
    assert "by throughput and 14 % by the time of the job" in text
    assert "Doubtful: 32 devices: 310 s is not explained" in text
    assert "The data does not support this prediction yet" in text
    assert re.search(r"64\|.*predicted\|[\d.,]+\|[\d.,]+ to [\d.,]+\|.*requested", text)


def test_the_first_box_has_verdict_devices_cause_and_certainty(folders):
    box = box_of(document_of(folders[0], full_run="90 epochs"))
    assert box.tone == "plain"
    assert re.match(
        r"4 devices are worth it: 3\.\d+ times as fast as 1, at \d+ % efficiency", box.title
    )
    answers = dict(box.answers)
    assert "One run (the full run of 90 epochs) takes" in answers["What is requested?"]
    assert answers["Why this many?"].startswith("Parallel efficiency against 1 device is ")
    limit = answers["What limits it?"]
    assert limit.startswith("On 4 devices ")
    assert limit.endswith("More than 4 devices were not measured.")
    assert answers["How sure?"].startswith(
        "4 devices were measured in 2 runs; the time of the full run is computed"
    )
    assert "No serious doubts were found." in answers["How sure?"]
    doubtful = box_of(document_of(TABLE))
    assert doubtful.tone == "doubtful"
    assert dict(doubtful.answers)["What is doubtful?"].startswith("32 devices: 310 s is not")


def test_the_first_box_says_that_a_request_is_predicted(folders):
    box = box_of(document_of(folders[0], request=8, full_run="90 epochs"))
    assert box.tone == "doubtful"
    assert box.title.startswith("8 devices are requested: a prediction, not a measurement")
    answers = dict(box.answers)
    assert re.search(r"is predicted to take .* \[.*\]:", answers["What is requested?"])
    assert "is predicted to be" in answers["Why this many?"]
    assert "8 devices were not measured" in answers["How sure?"]


def test_two_studies_have_a_box_each(folders):
    document = document_of(*folders, full_run="90 epochs")
    boxes = [block for block in document.blocks if isinstance(block, Box)]
    assert [box.title.partition(":")[0] for box in boxes] == ["study weak", "study strong"]
    text = latex(document, dict.fromkeys(range(len(document.blocks)), "figure.pdf"))
    assert text.count("\\fbox{") == 2


def test_a_request_near_the_data_is_supported_and_a_far_one_is_not(folders):
    near = text_of(document_of(folders[0], request=8))
    assert "The data supports this prediction" in near
    far = text_of(document_of(folders[0], request=4096))
    assert "4,096 devices are 1.02e+03 times the largest measurement" in far
    assert "The data does not support this prediction yet" in far


def test_a_request_without_a_full_run_asks_for_it(tmp_path):
    folder = a_watched_folder(tmp_path / "short")
    text = text_of(document_of(folder, request=2))
    assert "the total is known once the training is stated with" in text


def test_times_of_an_epoch_are_not_those_of_a_job(tmp_path):
    table = tmp_path / "epochs.csv"
    table.write_text("devices,epoch time (s)\n1,42.1\n2,22.5\n4,12.2\n")
    document = document_of(table)
    requested = dict(box_of(document).answers)["What is requested?"]
    assert requested == "4 devices. One epoch takes 12.2 s: 0.0136 device-hours."
    assert "epochs: time of one epoch" in text_of(document)


def test_wrong_training_justifies_no_scale(tmp_path):
    document = document_of(a_watched_folder(tmp_path / "wrong", "same samples"), request=2)
    box = box_of(document)
    assert box.tone == "blocked"
    assert box.title.startswith("This study must not be used for a proposal")
    assert "measured on: simulated machine" in document.subtitle
    (_, wrong), (_, fix), (_, devices) = box.answers
    assert devices == "None can be justified by these results."
    assert "2 of 2 ranks read the same samples" in wrong and "DistributedSampler" in fix
    text = text_of(document)
    assert "Weak scaling (not reliable)" in text
    assert "No number of devices is requested" in text and "is requested?" not in text


def test_tables_say_that_their_environment_is_not_recorded():
    text = text_of(document_of(TABLE))
    assert "how they were measured is not recorded" in text
    assert "Not recorded: the numbers come from tables." in text
    assert "Scaling (strong or weak is not stated)" in text


HOSTILE = "\\input{/etc/passwd} $x_1$ 50 % & # ~ ^ -- '' 中 שלום <b> {" + "n" * 5000


def test_the_printed_commands_have_the_options_that_were_given(scalewise, tmp_path):
    given = ["--price", "2.50", "--scaling", "weak", "--devices-per-node", "4"]
    options = "--price 2.5 --scaling weak --devices-per-node 4"
    assert scalewise("report", TABLE, *given, "-o", "page.html")[0] == 0
    text = re.sub("</?span>", "", (tmp_path / "page.html").read_text())
    assert f"scalewise report {TABLE} {options} -o report.html" in text
    code, _, err = scalewise("report", TABLE, *given, "--evidence", "--request", 4, "-o", "e.tex")
    assert (code, err) == (0, "")
    command = f"{TABLE} --evidence --request 4 {options} -o evidence.pdf"
    assert tex(command) in (tmp_path / "e.tex").read_text()
    (report,) = curve_reports(results.all_explained([TABLE]), price_of("aws:p5.48xlarge:spot"))
    assert report_command([report], "r.html").endswith(" --price aws:p5.48xlarge:spot -o r.html")


def test_names_are_typeset_literally():
    (loaded,) = results.all_explained([TABLE])
    named = replace(loaded[1], study=HOSTILE, conditions={HOSTILE: HOSTILE})
    document = evidence(curve_reports([(Path(HOSTILE), named, None)]))
    text = latex(document, dict.fromkeys(range(len(document.blocks)), "figure.pdf"))
    assert "\\input{" not in text and "\\textbackslash{}input\\{/etc/passwd\\}" in text
    assert text.isascii() or not re.search(r"[^\x00-\xff–]", text)
    assert text.count("\\begin{") == text.count("\\end{")
    content = document_pdf.pdf(document)
    assert content.startswith(b"%PDF-")


def test_ligatures_and_missing_characters_are_replaced():
    assert tex("--full-run '' ≥ 中") == "-{}-full-run '{}' $\\ge$ {[}U+4E2D{]}"


def test_latex_is_written_with_its_figures(scalewise, tmp_path):
    code, out, err = scalewise("report", TABLE, "--evidence", "-o", "my evidence.tex")
    assert (code, err) == (0, "")
    files = ["my evidence.tex", "my-evidence-throughput.pdf", "my-evidence-efficiency.pdf"]
    assert out.splitlines() == files
    text = (tmp_path / files[0]).read_text()
    assert all(f"{{{name}}}" in text for name in files[1:])
    assert (tmp_path / files[1]).read_bytes().startswith(b"%PDF-")
    assert "\\toprule" in text and "\\usepackage{booktabs}" in text
