"""Variants: changes that a study file applies to its own values when asked by name.

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
"""Keys that a variant may change; its name is the study's name plus its own."""
EXCLUSIVE_FIELDS = ({"epochs", "steps", "samples"}, {"batch", "global_batch"})
"""Groups of run fields of which only one may be set: a variant's replaces the study's."""


def apply_variant(values: Mapping[str, Any], name: str | None) -> dict[str, Any]:
    """Return a study's values, with the changes of the variant ``name`` if it is given.

    >>> values = {"name": "vit", "run": {"epochs": 5}, "variant": {"short": {"run": {"steps": 9}}}}
    >>> apply_variant(values, "short")
    {'name': 'vit-short', 'run': {'steps': 9}}
    """
    plain = {key: value for key, value in values.items() if key != "variant"}
    variants = values.get("variant", {})
    check_type("variant", variants, Mapping, "a table of variants, such as [variant.cpu.run]")
    for variant, changes in variants.items():
        check_type(f"variant.{variant}", changes, Mapping, "a table")
        refuse_unknown_keys(f"[variant.{variant}]", changes, VARIANT_KEYS)
    if name is None:
        return plain
    if name not in variants:
        choices = f"there are: {', '.join(variants)}" if variants else "it has none"
        raise SpecError(
            f"study {values.get('name')!r} has no variant {name!r}",
            hint=suggest_name(name, variants) or choices,
        )
    for key, change in variants[name].items():
        plain[key] = change
        if isinstance(change, Mapping):
            before = values.get(key, {})
            check_type("what a variant changes", before, Mapping, "a table")
            for group in EXCLUSIVE_FIELDS:
                if group & change.keys():
                    before = {field: before[field] for field in before if field not in group}
            plain[key] = {**before, **change}
    return {**plain, "name": f"{plain.get('name')}-{name}"}
