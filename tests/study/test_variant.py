"""The same study at another size."""

from pathlib import Path

import pytest
import tomllib

from paths import STUDIES
from scalewise.errors import SpecError
from scalewise.spec import StudySpec
from scalewise.study import load
from scalewise.study.load_study import apply_variant

SAID = {
    "name": "vit",
    "run": {"batch": 8, "epochs": 3, "framework": "fake"},
    "vary": {"topology": ["1x1", "1x2"], "strategy": ["ddp", "fsdp"]},
    "variant": {
        "short": {"run": {"steps": 9}, "vary": {"topology": ["1x4"]}},
        "strong": {"scaling": "strong", "run": {"global_batch": 64}, "repeats": 2},
    },
}


def test_without_a_variant_a_study_is_what_it_says():
    assert apply_variant(SAID, None) == {key: SAID[key] for key in ("name", "run", "vary")}


def test_a_variant_changes_what_it_says_and_drives_out_rivals():
    short = apply_variant(SAID, "short")
    assert short["name"] == "vit-short"
    assert short["run"] == {"batch": 8, "framework": "fake", "steps": 9}
    assert short["vary"] == {"topology": ["1x4"], "strategy": ["ddp", "fsdp"]}
    strong = StudySpec.from_dict(apply_variant(SAID, "strong"))
    assert (strong.scaling, strong.repeats) == ("strong", 2)
    assert "batch" not in strong.run


@pytest.mark.parametrize(
    ("values", "name", "words"),
    [
        (SAID, "shrt", "study 'vit' has no variant 'shrt'"),
        ({"name": "a"}, "cpu", "study 'a' has no variant 'cpu'"),
        ({"name": "a", "variant": 3}, None, "variant must be a table"),
        ({"name": "a", "variant": {"cpu": 3}}, None, "variant.cpu must be a table"),
        ({"name": "a", "variant": {"cpu": {"runn": {}}}}, None, r"\[variant.cpu\] has no key"),
        ({"name": "a", "run": 3, "variant": {"b": {"run": {}}}}, "b", "must be a table"),
    ],
)
def test_what_is_no_variant_is_refused(values, name, words):
    with pytest.raises(SpecError, match=words):
        apply_variant(values, name)


def variants():
    """Return every study that ships, with every variant of it."""
    for path in sorted(STUDIES.glob("*.toml")):
        said = tomllib.loads(path.read_text(encoding="utf-8"))
        yield from ((path, name) for name in [None, *said.get("variant", {})])


@pytest.mark.parametrize(
    ("path", "name"),
    [*variants()],
    ids=lambda each: each.stem if isinstance(each, Path) else str(each),
)
def test_every_study_that_ships_can_be_read(path, name):
    study = load(path, name)
    assert study.runs()
    assert study.name == (f"{path.stem}-{name}" if name else path.stem)
