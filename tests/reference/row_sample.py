"""The sample of a table as its definition says: all keys are computed and sorted, one by one."""

WORD = 2**64


def key_of(number, seed):
    """The key of a row: splitmix64 of its number in the table."""
    key = (number * 0x9E3779B97F4A7C15 + seed) % WORD
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        key = (key ^ (key >> shift)) * factor % WORD
    return key ^ (key >> 31)


def sampled_numbers(labels, weights, seed, unlabeled, labeled):
    """The numbers of the rows in the sample; a label is None if it is missing."""
    order = sorted(range(len(labels)), key=lambda number: (key_of(number, seed), number))
    order = [number for number in order if weights[number] > 0]
    without = [number for number in order if labels[number] is None]
    with_label = [number for number in order if labels[number] is not None]
    first = {}
    for number in with_label:
        first.setdefault(labels[number], number)
    return sorted({*without[:unlabeled], *with_label[:labeled], *first.values()})
