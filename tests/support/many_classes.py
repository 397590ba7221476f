"""Short messages of many classes."""

import numpy as np

COMMON = 0.7  # fraction of the words that do not depend on the class


def messages(n, n_classes, n_words, seed=0):
    """Return texts (n,) and classes (n,) as strings.

    The words follow Zipf's law, but every class has ten words of its own, and others that five
    classes share.
    """
    generator = np.random.default_rng(seed)
    frequencies = 1.0 / np.arange(1, n_words + 1)
    frequencies /= frequencies.sum()
    own = generator.integers(40, n_words, (n_classes, 10))
    shared = generator.integers(40, n_words, (n_classes // 5 + 1, 10))
    codes = generator.integers(n_classes, size=n)
    texts = []
    for code in codes:
        length = 4 + generator.poisson(7)
        words = np.where(
            generator.random(length) < COMMON,
            generator.choice(n_words, length, p=frequencies),
            generator.choice(np.append(own[code], shared[code // 5]), length),
        )
        texts.append(" ".join(f"word{word}" for word in words))
    return np.array(texts, dtype=object), np.array([f"intent {code}" for code in codes])
