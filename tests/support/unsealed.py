"""Take checksums out of a run's folder, so that a test may change its lines by hand."""

import re
from pathlib import Path

from scalewise.record.json_files import read_json
from scalewise.record.write import write_json


def unseal(home: Path) -> Path:
    """Take out the sums of all lines, as if an earlier version had written them; return home."""
    for path in home.glob("*.jsonl"):
        path.write_text(re.sub(r',"sum":"[0-9a-f]{8}"}$', "}", path.read_text(), flags=re.M))
    if (home / "outcome.json").exists():
        outcome = read_json(home / "outcome.json")
        outcome.pop("sums", None)
        write_json(home / "outcome.json", outcome)
    return home
