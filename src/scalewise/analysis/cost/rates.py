"""What one device costs for one hour: a number, or a name of the price list."""

from dataclasses import dataclass

from scalewise.catalog.hardware import Price, prices
from scalewise.errors import SpecError
from scalewise.validate import nearest, positive

SPOT = ":spot"
DEAREST = 1e9
"""Nothing costs more for an hour, in any money."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Money for one device and one hour; of a plain number nothing else is known."""

    per_device_hour: float
    currency: str | None = None
    name: str | None = None
    source: str | None = None
    date: str | None = None
    devices: int | None = None
    """Of the instance, which is rented whole."""

    def __str__(self) -> str:
        money = f"{self.per_device_hour:,.4g} {self.currency or ''}".rstrip()
        if self.name is None:
            return f"{money} per device-hour, as given"
        return f"{money} per device-hour is that of {self.name} ({self.source}; {self.date})"


def price_of(given: "str | float | Rate") -> Rate:
    """Return a rate from a number, or from ``provider:instance``, with ``:spot`` if that is meant.

    The provider may be left out where one alone has such an instance.

    >>> price_of(2.5).per_device_hour
    2.5
    >>> price_of("aws:p5.48xlarge").per_device_hour
    6.88
    """
    if isinstance(given, Rate):
        return given
    number = _number(given) if isinstance(given, str) else given
    if number is not None:
        positive("price", number, example=2.5)
        if number > DEAREST:
            raise SpecError(
                f"price must be at most {DEAREST:g}, got {number:g}", hint="--price 2.50"
            )
        return Rate(float(number))
    assert isinstance(given, str)  # Anything else was a number, or refused as none.
    text = given.strip()
    wants_spot = text.lower().endswith(SPOT)
    found = _named(text[: -len(SPOT)] if wants_spot else text)
    money = found.spot if wants_spot else found.hour
    if money is None:
        raise SpecError(
            f"no spot price of {found.name} is known",
            hint=f"--price {found.name} is that on demand; docs/guides/catalog.md adds your own",
        )
    return Rate(
        per_device_hour=money / found.devices,
        currency=found.currency,
        name=found.name + (SPOT if wants_spot else ""),
        source=found.source,
        date=found.date,
        devices=found.devices,
    )


def _number(text: str) -> float | None:
    try:
        return float(text if text.isascii() and "_" not in text else "none")
    except ValueError:
        return None


def _named(text: str) -> Price:
    """Return the one price of this name; who writes only the instance means any provider."""
    every = prices()
    asked = text.lower()
    found = [
        price for name, price in every.items() if asked in (name.lower(), price.instance.lower())
    ]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(price.name for price in found)
        raise SpecError(f"{text!r} is the name of several prices: {names}", hint="name one of them")
    known = [*every, *(price.instance for price in every.values())]
    raise SpecError(
        f"price must be a number above 0, or a name of the price list, got {text!r}",
        hint=nearest(text, known) or "for example price = 2.5, or see `scalewise catalog prices`",
    )


def same_money(one: str, other: str) -> bool:
    """Say whether two names of a currency mean the same.

    >>> same_money("$", "USD"), same_money("EUR", "USD")
    (True, False)
    """
    signs = {"$": "USD", "US$": "USD", "€": "EUR", "£": "GBP"}

    def full(name: str) -> str:
        return signs.get(name.strip().upper(), name.strip().upper())

    return full(one) == full(other)
