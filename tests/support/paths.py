"""Folders of this checkout that tests read."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
STUDIES = ROOT / "studies"
TESTS = ROOT / "tests"
RANK_PROGRAMS = TESTS / "rank_programs"
"""Programs that tests start as ranks, each in its own processes."""
