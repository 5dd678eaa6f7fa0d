"""The same question at another size: what a study file says differently of itself.

[variant.cpu.run]
workload = "vit-ti16"

[variant.cpu.vary]
topology = ["1x1", "1x2"]
"""

from collections.abc import Mapping
from typing import Any

from scalewise.errors import SpecError
from scalewise.validate import check_type, refuse_unknown_keys, suggest_name

VARIANT_KEYS = ["run", "vary", "launcher", "scaling", "repeats"]
"""What a variant may change; its name is the study's and its own."""
EXCLUSIVE_FIELDS = ({"epochs", "steps", "samples"}, {"batch", "global_batch"})
"""Fields of a run of which it has one: another takes the place of the first."""


def apply_variant(values: Mapping[str, Any], name: str | None) -> dict[str, Any]:
    """Return a study's values, as this variant of it has them if one is named.

    >>> said = {"name": "vit", "run": {"epochs": 5}, "variant": {"short": {"run": {"steps": 9}}}}
    >>> varied(said, "short")
    {'name': 'vit-short', 'run': {'steps': 9}}
    """
    plain = {key: value for key, value in values.items() if key != "variant"}
    variants = values.get("variant", {})
    check_type("variant", variants, Mapping, "a table of variants, such as [variant.cpu.run]")
    for each, changes in variants.items():
        check_type(f"variant.{each}", changes, Mapping, "a table")
        refuse_unknown_keys(f"[variant.{each}]", changes, VARIANT_KEYS)
    if name is None:
        return plain
    if name not in variants:
        there = f"there are: {', '.join(variants)}" if variants else "it has none"
        raise SpecError(
            f"study {values.get('name')!r} has no variant {name!r}",
            hint=suggest_name(name, variants) or there,
        )
    for key, change in variants[name].items():
        plain[key] = _merge(plain.get(key, {}), change) if isinstance(change, Mapping) else change
    return {**plain, "name": f"{plain.get('name')}-{name}"}


def _merge(before: Any, change: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with these changes; one of several rivals drives out the others."""
    check_type("what a variant changes", before, Mapping, "a table")
    gone = {key for rivals in EXCLUSIVE_FIELDS if rivals & change.keys() for key in rivals}
    return {key: value for key, value in before.items() if key not in gone} | dict(change)
