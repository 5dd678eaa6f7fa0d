"""Devices and machines, and how one model is split over them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from scalewise.errors import SpecError, shown
from scalewise.spec.strategy_traits import StrategyTraits
from scalewise.validate import check_integer, refuse_unknown_keys


@dataclass(frozen=True, slots=True, order=True)
class Topology:
    """``nodes`` machines with ``devices`` accelerators each, written ``2x8``."""

    nodes: int
    devices: int

    def __post_init__(self) -> None:
        check_integer("topology nodes", self.nodes, minimum=1)
        check_integer("topology devices", self.devices, minimum=1)

    @property
    def world(self) -> int:
        """The number of devices in total. (The ``world`` of a job counts ranks.)"""
        return self.nodes * self.devices

    @classmethod
    def parse(cls, value: Any) -> "Topology":
        """Read ``"2x8"``, or ``8`` for a single node.

        >>> Topology.parse("2x8").world
        16
        """
        is_text_or_int = not isinstance(value, bool) and isinstance(value, (str, int))
        match = (
            re.fullmatch(r"(?:([0-9]{1,99})x)?([0-9]{1,99})", str(value))
            if is_text_or_int
            else None
        )
        if not match:
            hint = "write NODESxDEVICES, for example 2x8"
            raise SpecError(f"not a topology: {shown(value)}", hint=hint)
        counts = int(match[1] or 1), int(match[2])
        if min(counts) < 1:
            hint = "write NODESxDEVICES, for example 2x8"
            raise SpecError(f"a topology needs at least 1x1, got {shown(value)}", hint=hint)
        return cls(*counts)

    def __str__(self) -> str:
        return f"{self.nodes}x{self.devices}"


@dataclass(frozen=True, slots=True)
class Parallelism:
    """How many devices hold one model together, by kind of split."""

    shard: int = 1
    """Devices that divide the parameters; each trains on its own samples."""
    tensor: int = 1
    """Devices that divide each layer."""
    pipeline: int = 1
    """Devices that divide the sequence of layers."""

    def __post_init__(self) -> None:
        for item in fields(self):
            check_integer(f"parallelism {item.name}", getattr(self, item.name), minimum=1)

    @classmethod
    def parse(cls, value: Any) -> "Parallelism":
        """Read a table such as ``{tensor = 2}``."""
        if not isinstance(value, Mapping):
            hint = "for example parallelism = {tensor = 2}"
            raise SpecError(f"parallelism must be a table, got {shown(value)}", hint=hint)
        refuse_unknown_keys("parallelism", value, [item.name for item in fields(cls)])
        return cls(**value)

    def filled(self, strategy: StrategyTraits, topology: Topology) -> "Parallelism":
        """Return these degrees; if the strategy's own degree is 1, it takes all remaining devices.

        >>> Parallelism(tensor=2).filled(StrategyTraits(degree="shard"), Topology(2, 4))
        Parallelism(shard=4, tensor=2, pipeline=1)
        """
        degree_name = strategy.degree
        if degree_name is None or getattr(self, degree_name) > 1:
            return self
        devices = topology.devices if strategy.within_node else topology.world
        return replace(self, **{degree_name: max(1, devices // self.degree)})

    def __str__(self) -> str:
        """Return the degrees above 1 as a TOML table.

        >>> print(Parallelism(tensor=2))
        {tensor = 2}
        """
        degrees = [(item.name, getattr(self, item.name)) for item in fields(self)]
        return "{" + ", ".join(f"{name} = {degree}" for name, degree in degrees if degree > 1) + "}"

    @property
    def degree(self) -> int:
        """The product of the degrees: how many devices hold one model together."""
        return self.shard * self.tensor * self.pipeline

    def replicas(self, world: int) -> int:
        """Return how many data-parallel replicas ``world`` devices make.

        >>> Parallelism(tensor=2).replicas(8)
        4
        """
        if world % self.degree:
            raise SpecError(
                f"shard {self.shard} x tensor {self.tensor} x pipeline {self.pipeline} "
                f"= {self.degree} does not divide {world} devices",
                hint="choose degrees whose product divides the number of devices",
            )
        return world // (self.tensor * self.pipeline)  # Each device of a shard group is a replica.
