"""A real data set, learnt on one device and on two."""

import pytest

import scalewise
from paths import STUDIES

STUDY = STUDIES / "mnist.toml"


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_fashion_mnist_is_learnt_as_well_on_two_devices_as_on_one(tmp_path):
    """`make soak` installs the data: Debian's package dataset-fashion-mnist."""
    folder = scalewise.run(STUDY, tmp_path / "mnist", variant="cpu")
    one, two = (point.accuracy.value for point in scalewise.measure(folder).points)
    assert min(one, two) >= 0.88
    assert abs(one - two) < 0.01
