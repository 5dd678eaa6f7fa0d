"""The price of one device for one hour: a number, or the name of an entry in the price list."""

from contextlib import suppress
from dataclasses import dataclass

from scalewise.analysis.measure import Estimate
from scalewise.catalog.hardware import Price, prices
from scalewise.errors import SpecError, parameter, shown
from scalewise.validate import check_positive, suggest_name

SPOT_SUFFIX = ":spot"
MAX_PRICE = 1e9
"""Per device-hour, in any currency; a higher price is refused as a typing error."""


@dataclass(frozen=True, slots=True)
class Rate:
    """The price of one device-hour. If given as a number, it has no currency, name or source."""

    per_device_hour: float
    currency: str | None = None
    name: str | None = None
    source: str | None = None
    date: str | None = None
    devices: int | None = None
    """Devices of one instance, which can only be rented as a whole."""

    def cost(self, device_hours: Estimate) -> Estimate:
        """Return what so many device-hours cost, in ``currency``."""
        return device_hours * self.per_device_hour


def price_of(price: "str | float | Rate") -> Rate:
    """Return the rate of a number, or of ``[provider:]instance[:spot]`` in the price list.

    >>> price_of(2.5).per_device_hour
    2.5
    >>> price_of("aws:p5.48xlarge").per_device_hour
    6.88
    """
    if isinstance(price, Rate):
        return price
    number: float | None = None
    if not isinstance(price, str):
        number = price
    elif price.isascii() and "_" not in price:  # float() also reads 1_000 and non-ASCII digits.
        with suppress(ValueError):
            number = float(price)
    if number is not None:
        check_positive("price", number, example=2.5, maximum=MAX_PRICE)
        return Rate(float(number))
    assert isinstance(price, str)  # Other types were numbers, or refused by check_positive().
    text = price.strip()
    is_spot = text.lower().endswith(SPOT_SUFFIX)
    entry = _find_price(text[: -len(SPOT_SUFFIX)] if is_spot else text)
    instance_price = entry.spot if is_spot else entry.hour
    if instance_price is None:
        raise SpecError(
            f"no spot price of {entry.name} is known",
            hint=f"{parameter('price', entry.name)} is its on-demand price; "
            "docs/guides/catalog.md shows how to add your own",
        )
    return Rate(
        per_device_hour=instance_price / entry.devices,
        currency=entry.currency,
        name=entry.name + (SPOT_SUFFIX if is_spot else ""),
        source=entry.source,
        date=entry.date,
        devices=entry.devices,
    )


def _find_price(text: str) -> Price:
    """Return the price with this name, or of this instance if only one provider has it."""
    catalog = prices()
    lower = text.lower()
    matches = [
        price for name, price in catalog.items() if lower in (name.lower(), price.instance.lower())
    ]
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = ", ".join(price.name for price in matches)
        raise SpecError(
            f"{shown(text)} is the name of several prices: {names}", hint="name one of them"
        )
    names_and_instances = [*catalog, *(price.instance for price in catalog.values())]
    raise SpecError(
        f"price must be a number above 0, or a name of the price list, got {shown(text)}",
        hint=suggest_name(text, names_and_instances)
        or "for example price = 2.5, or see `scalewise catalog prices`",
    )


def same_money(first: str, second: str) -> bool:
    """Return whether two currency names or signs mean the same currency.

    >>> same_money("$", "USD"), same_money("EUR", "USD")
    (True, False)
    """
    signs = {"$": "USD", "US$": "USD", "€": "EUR", "£": "GBP"}
    first, second = (name.strip().upper() for name in (first, second))
    return signs.get(first, first) == signs.get(second, second)
