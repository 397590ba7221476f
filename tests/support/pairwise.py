"""A pairwise cover: few configurations in which every pair of values of two factors occurs."""

from itertools import combinations


def pairs(factors):
    """Return the pairs of (factor, value) of a configuration."""
    return set(combinations(sorted(factors.items(), key=lambda item: item[0]), 2))


def pairwise_cover(configurations):
    """Return names of configurations that have every pair of values of the whole.

    ``configurations`` maps names to dictionaries from factor to value. Greedy: first those that
    alone have some pair, then always the one with most pairs that are still missing.
    """
    pairs_of = {name: pairs(factors) for name, factors in configurations.items()}
    missing = set().union(*pairs_of.values())
    cover = [name for name in pairs_of if missing - union_of_others(pairs_of, name)]
    missing -= set().union(*(pairs_of[name] for name in cover))
    while missing:
        cover.append(max(pairs_of, key=lambda name: len(pairs_of[name] & missing)))
        missing -= pairs_of[cover[-1]]
    return [name for name in configurations if name in cover]


def union_of_others(pairs_of, name):
    return set().union(*(each for other, each in pairs_of.items() if other != name))
