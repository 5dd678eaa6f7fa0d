"""The verb ``import``: logs of other programs become a table."""

from pathlib import Path
from typing import Annotated

import typer

from scalewise.cli.app import verb
from scalewise.cli.options import flag, option, output_file
from scalewise.cli.output import say, say_problem
from scalewise.errors import SpecError


@verb("Data and tools", "import")
def import_logs(
    logs: Annotated[
        list[str],
        typer.Argument(
            metavar="LOG...",
            help="Logs or folders of logs; 4=FILE gives the number of devices, 2x4=FILE the nodes.",
        ),
    ],
    output: Annotated[
        Path | None, output_file("The CSV table to write [default: print it].")
    ] = None,
    samples_per_epoch: Annotated[
        int | None, option("N", "For logs that give times only.", minimum=1)
    ] = None,
    batch: Annotated[
        int | None, option("N", "Samples per step of all devices, for it/s.", minimum=1)
    ] = None,
    batch_per_device: Annotated[
        int | None, option("N", "The same of one device, if the batch grows.", minimum=1)
    ] = None,
    per_device: Annotated[
        bool, flag("--per-device", "Rates in the logs are those of one device.")
    ] = False,
) -> None:
    """Make a table of the logs of runs on 1, 2, 4 … devices.

    Reads MLPerf, TensorBoard and Lightning files, and the lines that PyTorch, Keras, Horovod,
    DeepSpeed, Hugging Face and others print. All verbs read the table. A log that cannot be
    imported is named and left out, and the exit code is 1.

    Examples:
      scalewise import run_1gpu.log run_2gpu.log run_4gpu.log -o study.csv
      scalewise import 1=a.log 2=b.log 4=c.log --samples-per-epoch 50000 -o s.csv
    """
    from scalewise.analysis.measure.logs import LogOptions
    from scalewise.import_logs import LogSource
    from scalewise.import_logs import import_logs as read_logs
    from scalewise.record.write import write_text
    from scalewise.report.imported_table import imported_csv
    from scalewise.report.text.imported import batch_hint, growth_hint, imported_lines

    sources = [LogSource.parse(text) for text in logs]
    if output and any(source.path.resolve() == output.resolve() for source in sources):
        raise SpecError(f"{output} is one of the logs", hint="write the table to another file")
    if batch and batch_per_device:
        raise SpecError("--batch and --batch-per-device are both given", hint="give one of them")
    options = LogOptions(
        samples_per_epoch=samples_per_epoch,
        batch=batch,
        batch_per_device=batch_per_device,
        per_device=per_device,
    )
    imported = read_logs(sources, options)
    if not imported.runs:
        *others, last = imported.problems
        for problem in others:
            say_problem(problem)
        raise last
    hints = [hint(imported.runs) for hint in (growth_hint, batch_hint)]
    for line in [*imported_lines(imported), *filter(None, hints)]:
        say(line, err=output is None)
    if output is None:
        typer.echo(imported_csv(imported), nl=False)
    else:
        write_text(output, imported_csv(imported))
        say(f"Wrote {output}. Next: scalewise summary {output}")
    for problem in imported.problems:
        say_problem(problem)
    if imported.problems:
        raise typer.Exit(1)
