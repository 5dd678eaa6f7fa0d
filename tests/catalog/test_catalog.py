"""The catalog: every row has its source, users' rows win, nonsense is answered in a sentence."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

import scalewise
from paths import DOCS
from scalewise.analysis.cost.rates import Rate, price_of, same_money
from scalewise.catalog import hardware
from scalewise.catalog.hardware import (
    PRECISIONS,
    ROW_TYPES,
    Device,
    devices,
    links,
    prices,
    search_catalog,
)
from scalewise.errors import SpecError
from scalewise.report import catalog_sections, formats
from scalewise.report.text.spending import describe_rate

GUIDE = DOCS / "guides/catalog.md"
OWN = """
[[device]]
name = "a100-40gb"
power = 250

[[device]]
name = "mine"
memory = 64e9
peak = {bf16 = 200e12}

[[link]]
name = "our fabric"
bandwidth = 23e9

[[price]]
provider = "centre"
instance = "gpu-node"
device = "mine"
devices = 4
hour = 3.2
currency = "EUR"
"""


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    """Keep the catalog of whoever runs the tests out of them; return a way to write one."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def write(text):
        (tmp_path / "scalewise").mkdir(exist_ok=True)
        (tmp_path / "scalewise" / "catalog.toml").write_text(text)

    return write


@pytest.mark.parametrize("kind", ROW_TYPES)
def test_every_row_has_a_source_and_a_date_and_is_listed_once(kind):
    rows = search_catalog(kind, [])
    ours = json.loads((Path(hardware.__file__).parent / f"{kind}.json").read_text())
    assert len(rows) == len(ours) > 20
    assert all(row.source and re.match(r"(19|20)\d\d", row.date) for row in rows)


def test_numbers_are_of_a_plausible_size_and_faster_where_fewer_bits_are():
    for row in devices().values():
        assert 8e9 <= row.memory <= 300e9
        assert 2e11 <= row.bandwidth <= 1e13
        assert row.power is None or 50 <= row.power <= 1500
        assert set(row.peak) == set(PRECISIONS)
        rates = [row.peak[name] for name in ("fp32", "tf32", "bf16", "fp8") if row.peak[name]]
        assert rates == sorted(rates)
        assert all(1e12 < rate < 1e16 for rate in rates)
    for row in links().values():
        assert 1e8 <= row.bandwidth <= 1e12
        assert row.latency is None or 1e-8 <= row.latency <= 1e-3


def test_prices_are_of_devices_that_are_listed_and_spot_is_the_cheaper():
    known = devices()
    for row in prices().values():
        assert row.device in known and 1 <= row.devices <= 16 and row.currency == "USD"
        assert 0.2 < row.hour / row.devices < 20
        assert row.spot is None or 0.05 * row.hour < row.spot < 0.7 * row.hour


def test_what_was_asked_for_is_there():
    assert {"v100", "a100-40gb", "a100-80gb", "h100-sxm", "h100-pcie", "h200", "b200", "l4"} < {
        *devices()
    }
    assert {"pcie-5-x16", "nvlink-4", "infiniband-ndr", "ethernet-100", "efa-p5"} < {*links()}
    assert {"aws", "gcp", "azure", "lambda"} < {row.provider for row in prices().values()}


def test_users_rows_win_by_name_and_are_added(own):
    before = len(devices())
    own(OWN)
    assert devices()["a100-40gb"] == Device(
        name="a100-40gb", power=250, source="your catalog.toml", date="as you wrote it"
    )
    assert len(devices()) == before + 1
    assert links()["our fabric"].bandwidth == 23e9
    assert price_of("centre:gpu-node").currency == "EUR"
    assert price_of("gpu-node").per_device_hour == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("[[device]", "cannot read", ""),
        ("\0", "cannot read", ""),
        ("[[devices]]\nname = 'x'", "has no key 'devices'", "did you mean 'device'?"),
        ("device = 3", "device must be rows, got 3", "write [[device]]"),
        ("[device]\nname = 'x'", "device must be rows", "write [[device]]"),
        ("[[device]]\nmemory = 1e9", "[[device]] 1 has no name", "at least name"),
        ("[[device]]\nname = ''", "name must be one line of text, got ''", ""),
        ("[[device]]\nname = 'a\\u001b'\n", "cannot read", ""),
        ('[[device]]\nname = "a\\u001b"', "name must be one line of text", ""),
        ("[[device]]\nname = 'x'\nwatts = 3", "has no key 'watts'", "known are"),
        ("[[device]]\nname = 'x'\npower = '3 W'", "power must be a number above 0, got '3 W'", ""),
        ("[[device]]\nname = 'x'\npower = nan", "power must be a number above 0", ""),
        ("[[device]]\nname = 'x'\npower = true", "power must be a number above 0", ""),
        ("[[device]]\nname = 'x'\npeak = {int4 = 1}", "has no key 'int4'", "known are"),
        ("[[device]]\nname = 'x'\npeak = {bf16 = -1}", "bf16 must be a number above 0", ""),
        ("[[link]]\nname = 'x'", "has no bandwidth", "bandwidth = 25e9"),
        ("[[price]]\nprovider = 'x'", "has no instance", "currency"),
        (OWN + "interruption = 5", "interruption must be a share from 0 to 1, got 5", ""),
        (OWN.replace("devices = 4", "devices = 0"), "devices must be a whole number from 1", ""),
        (OWN.replace("hour = 3.2", "hour = inf"), "hour must be a number above 0", ""),
    ],
)
def test_nonsense_in_users_rows_is_refused_in_a_sentence(own, text, problem, hint):
    if "\\u001b'" in text:
        text = text.replace("\\u001b", "\u001b")
    own(text)
    with pytest.raises(SpecError) as refused:
        [search_catalog(kind, []) for kind in ROW_TYPES]
    assert problem in str(refused.value)
    assert hint in refused.value.hint
    assert "\n" not in str(refused.value)


def test_a_rate_is_of_one_device_and_says_where_it_is_from():
    found = price_of("aws:p4d.24xlarge")
    assert found.per_device_hour == pytest.approx(21.95764 / 8)
    assert (found.currency, found.name) == ("USD", "aws:p4d.24xlarge")
    text = describe_rate(found)
    assert "skypilot-catalog" in text and "2025-11 or later" in text
    spot = price_of("P4D.24xlarge:SPOT")
    assert spot.per_device_hour < found.per_device_hour and spot.name == "aws:p4d.24xlarge:spot"
    assert price_of(spot) is spot
    assert describe_rate(price_of("2.50")) == "2.5 per device-hour, as given"


@pytest.mark.parametrize(
    ("given", "problem", "hint"),
    [
        ("cheap", "price must be a number above 0, or a name of the price list", "catalog prices"),
        ("aws:p5.48xlrge", "got 'aws:p5.48xlrge'", "did you mean 'aws:p5.48xlarge'?"),
        ("p4de.24xlarge:spot", "no spot price of aws:p4de.24xlarge is known", "on-demand"),
        ("", "or a name of the price list, got ''", "2.5"),
        ("0", "price must be a number above 0, got 0", "2.5"),
        ("-1", "price must be a number above 0", "2.5"),
        ("nan", "price must be a number above 0", "2.5"),
        ("1e999", "price must be a number above 0", "2.5"),
        ("1_0", "or a name of the price list", "2.5"),
        (True, "price must be a number above 0, got True", "2.5"),
        ([], "price must be a number above 0, got []", "2.5"),
    ],
)
def test_a_price_that_is_none_is_refused_with_a_hint(given, problem, hint):
    with pytest.raises(SpecError) as refused:
        price_of(given)
    assert problem in str(refused.value)
    assert hint in refused.value.hint


def test_an_instance_that_two_providers_have_must_be_named_in_full(own):
    own(OWN + OWN[OWN.index("[[price]]") :].replace("centre", "other"))
    with pytest.raises(SpecError, match="several prices: centre:gpu-node, other:gpu-node"):
        price_of("gpu-node")
    assert price_of("other:gpu-node").name == "other:gpu-node"


@given(some.text())
def test_any_text_is_a_price_or_refused(text):
    try:
        found = price_of(text)
    except SpecError:
        return
    assert isinstance(found, Rate) and 0 < found.per_device_hour < float("inf")


def test_currencies_are_compared_as_people_write_them():
    assert same_money("eur", "€") and same_money("US$", "usd") and not same_money("CHF", "EUR")


def test_the_table_has_every_row_and_no_empty_column():
    (section,) = catalog_sections.sections({"links": search_catalog("links", [])})
    assert section.tables[0].header == ("link", "GB/s each way", "date", "source")
    assert len(section.tables[0].rows) == len(links())
    told = json.loads(
        catalog_sections.as_json({"devices": search_catalog("devices", ["a100-80gb"])})
    )
    assert [row["name"] for row in told["devices"]] == ["a100-80gb", "a100-80gb-pcie"]


def test_the_guide_shows_what_is_printed():
    printed = formats.plain_text(
        catalog_sections.sections({"prices": search_catalog("prices", ["h100", "aws"])}), brief=True
    )
    assert f"\n```\n{printed.strip()}\n```\n" in GUIDE.read_text()


def test_the_guides_own_rows_are_accepted(own):
    (text,) = re.findall(r"^```toml\n(.*?)^```$", GUIDE.read_text(), re.M | re.S)
    own(text)
    assert price_of("centre:gpu-node").source == "price list of the computing centre"
    assert devices()["mine"].power == 450


def test_a_part_of_an_instance_is_warned_of():
    curve = scalewise.curve(times=[(1, 100.0), (2, 60.0), (8, 30.0)], devices_per_node=8)
    small = scalewise.advise(curve, "budget=0.04", [8], price="aws:p5.48xlarge")
    assert small.closest.devices < 8
    assert any("aws:p5.48xlarge is rented whole, with 8 devices" in each for each in small.warnings)
    whole = scalewise.advise(curve, "time", [8], price="aws:p5.48xlarge")
    assert whole.closest.devices == 8
    assert not any("rented whole" in each for each in whole.warnings)
