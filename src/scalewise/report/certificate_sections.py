"""Certificates as a section for the terminal, text files and the page, and as JSON."""

from collections.abc import Sequence

from scalewise.analysis.certify import Certificate
from scalewise.report.formats import dump_json
from scalewise.report.tables import Section
from scalewise.report.text.certificate import certificate_lines, certificate_values

TITLES = {
    "equal": "equal to 1 device",
    "differs": "not what 1 device learns",
    "cannot tell": "cannot tell",
}
"""By verdict: the headline."""


def sections(certificates: Sequence[Certificate]) -> list[Section]:
    """Return one section with all certificates, the worst verdict as its title."""
    lines = [line for certificate in certificates for line in certificate_lines(certificate)]
    return [Section(title=f"Certificate: {headline(certificates)}", lines=tuple(lines))]


def headline(certificates: Sequence[Certificate]) -> str:
    """Return the worst verdict in a few words."""
    verdicts = {certificate.verdict for certificate in certificates}
    order = ("differs", "cannot tell", "equal")
    return TITLES[next(verdict for verdict in order if verdict in verdicts)]


def as_json(certificates: Sequence[Certificate]) -> str:
    """Return certificates as JSON (docs/reference/json.md)."""
    return dump_json({"certificates": [certificate_values(item) for item in certificates]})
