"""Certify that a training on several devices learns what one device learns."""

from scalewise.analysis.certify.certificate import Certificate, Checked, Verdict
from scalewise.analysis.certify.compare_runs import certify
from scalewise.analysis.certify.sketched_run import SketchedRun, sketched_run

__all__ = ["Certificate", "Checked", "SketchedRun", "Verdict", "certify", "sketched_run"]
