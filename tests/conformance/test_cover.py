"""The configurations that run by default have every pair of values that the full list has."""

import pytest

from tests.support.configurations import CONFIGURATIONS, COVER
from tests.support.pairwise import pairs, pairwise_cover


def pairs_among(names):
    return set().union(*(pairs(CONFIGURATIONS[name].factors()) for name in names))


def test_the_cover_has_every_pair_of_the_full_list():
    assert pairs_among(COVER) == pairs_among(CONFIGURATIONS)
    assert set(COVER) < set(CONFIGURATIONS)


@pytest.mark.parametrize("name", ["window", "spectral-poly-dense", "SeqMED-median-bias"])
def test_a_missing_configuration_with_a_unique_pair_is_detected(name):
    assert pairs_among(COVER) > pairs_among(set(COVER) - {name})


def test_pairs_are_counted_over_all_factors():
    assert len(pairs({"a": 1, "b": 2, "c": 3})) == 3
    square = {f"{a}{b}{c}": {"a": a, "b": b, "c": c} for a in "xy" for b in "xy" for c in "xy"}
    assert 4 <= len(pairwise_cover(square)) < 8
