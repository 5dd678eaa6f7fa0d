"""Write a deck of slides or the evidence for a proposal, in the format of the file's suffix."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from scalewise.analysis.cost.rates import Rate
from scalewise.analysis.explain import Explanation
from scalewise.analysis.measure import ScalingCurve
from scalewise.errors import SpecError, cut, parameter
from scalewise.record.write import write_bytes, write_text
from scalewise.report.curve_report import CurveReport, curve_reports
from scalewise.report.document import Document
from scalewise.report.figures import Figure

Loaded = Sequence[tuple[Path, ScalingCurve, Explanation | None]]
"""Curves, each with its source and explanation, as ``results.all_explained`` returns them."""
DocumentKind = Literal["slides", "evidence"]
SUFFIXES: dict[DocumentKind, tuple[str, ...]] = {
    "slides": (".html", ".pdf"),
    "evidence": (".pdf", ".tex"),
}
"""By kind of document: the suffixes of its files."""
DEFAULT_FILES: dict[DocumentKind | None, str] = {
    "slides": "slides.html",
    "evidence": "evidence.pdf",
}


def document_kind(
    *,
    slides: bool,
    evidence: bool,
    request: int | None = None,
    plot: str | None = None,
    as_format: str | None = None,
) -> DocumentKind | None:
    """Return the document that options ask for, None for a report; refuse contradictions."""
    if slides and evidence:
        raise SpecError(
            f"{parameter('slides')} and {parameter('evidence')} are two documents",
            hint="give one of them, then run the command again with the other",
        )
    if request is not None and not evidence:
        raise SpecError(
            f"{parameter('request')} is the scale that {parameter('evidence')} justifies",
            hint=f"add {parameter('evidence')} -o evidence.pdf",
        )
    kind: DocumentKind | None = "slides" if slides else "evidence" if evidence else None
    if kind and (plot or as_format):
        other = parameter("plot" if plot else "as")
        raise SpecError(
            f"{parameter(kind)} and {other} exclude each other", hint="give one of them"
        )
    return kind


def refuse_suffix(kind: DocumentKind, path: Path) -> None:
    """Raise an error if a document of this kind cannot be written to this file."""
    suffixes = SUFFIXES[kind]
    if path.suffix.lower() not in suffixes:
        raise SpecError(
            f"{path} cannot hold {kind}: only {' and '.join(suffixes)} files can",
            hint=f"for example {parameter(kind)} -o {kind}{suffixes[-1]}",
        )


def write_document(
    kind: DocumentKind,
    loaded: Loaded,
    path: Path,
    *,
    request: int | None = None,
    price: Rate | None = None,
    table_options: Mapping[str, object] | None = None,
) -> list[Path]:
    """Write slides or evidence; return the paths: LaTeX has its figures in files beside it."""
    refuse_suffix(kind, path)
    reports = curve_reports(loaded, price, table_options)
    return _write_slides(reports, path) if kind == "slides" else (
        _write_evidence(reports, path, request)
    )  # fmt: skip


def _write_slides(reports: Sequence[CurveReport], path: Path) -> list[Path]:
    from scalewise.report import slides_html, slides_pdf  # Matplotlib is slow to import.
    from scalewise.report.slides import slides

    deck = slides(reports)
    title = cut(", ".join(dict.fromkeys(r.curve.study for r in reports)), 100)
    if path.suffix.lower() == ".html":
        write_text(path, slides_html.html(deck, title))
    else:
        write_bytes(path, slides_pdf.pdf(deck, title))
    return [path]


def _write_evidence(reports: Sequence[CurveReport], path: Path, request: int | None) -> list[Path]:
    from scalewise.report import document_latex, document_pdf
    from scalewise.report.evidence import evidence

    document = evidence(reports, request)
    if path.suffix.lower() == ".pdf":
        write_bytes(path, document_pdf.pdf(document))
        return [path]
    files = _write_figures(document, path)
    names = {index: file.name for index, file in files.items()}
    write_text(path, document_latex.latex(document, names))
    return [path, *files.values()]


def _write_figures(document: Document, path: Path) -> dict[int, Path]:
    """Write the figures as PDF beside the document; return the files by position of the block."""
    from scalewise.report.figures.matplotlib_figure import draw, write

    # Without the characters that LaTeX does not take in file names.
    stem = re.sub(r"[^A-Za-z0-9]+", "-", path.stem).strip("-") or "evidence"
    files: dict[int, Path] = {}
    for index, block in enumerate(document.blocks):
        if isinstance(block, Figure):
            files[index] = write(draw(block, 2), path.with_name(f"{stem}-{block.name}.pdf"))
    return files
