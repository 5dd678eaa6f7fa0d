"""How results came about: where runs were measured, with which settings, and which commands."""

from collections.abc import Mapping, Sequence

from scalewise.report.curve_report import CurveReport
from scalewise.report.escape import shell_word
from scalewise.report.evidence_tables import settings_table
from scalewise.report.tables import Table
from scalewise.report.text.method import environment_rows


def method_tables(report: CurveReport) -> list[Table]:
    """Return where the runs of a curve were measured, and their settings."""
    rows = tuple(environment_rows([report]))
    where = Table("Where it was measured", ("what", "value"), rows) if rows else None
    return [table for table in (where, settings_table([report])) if table]


def reproduce_commands(report: CurveReport) -> list[tuple[str, str]]:
    """Return what to do again, each with its command."""
    commands = []
    if program := report.curve.conditions.get("program"):
        counts = ",".join(str(point.devices) for point in report.curve.points)
        commands.append(("Measure again", f"scalewise run --on {counts} -- {program}"))
    elif report.explanation:
        commands.append(("Measure again", "scalewise run STUDY.toml --again"))
    return [*commands, ("Write this page", report_command([report], "report.html"))]


def report_command(
    reports: Sequence[CurveReport], output: str, options: Mapping[str, object] | None = None
) -> str:
    """Return the command that writes these curves to this file, with these options and those that
    the user gave. True stands for an option without a value; None omits the option.
    """
    first = reports[0]  # The options are the same for all curves.
    rate, full_run = first.rate, first.curve.full_run
    given = {
        **(options or {}),
        "--price": rate and (rate.name or rate.per_device_hour),
        "--full-run": full_run and full_run.text,
        **{f"--{name.replace('_', '-')}": value for name, value in first.table_options.items()},
        "-o": output,
    }
    words = [shell_word(source) for source in dict.fromkeys(r.source for r in reports)]
    for name, value in given.items():
        if value is not None:
            words.append(name if value is True else f"{name} {shell_word(str(value))}")
    return " ".join(["scalewise report", *words])
