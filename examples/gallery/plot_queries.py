"""
Which rows should I label?
==========================

`query` chooses the rows whose labels would help most. Two of every hundred digits get a label:
chosen by `query`, or at random.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from seqmed import SeqGraphMED, plotting, query

X, y = load_digits(return_X_y=True)


def run(seed, choose):
    """Return the test accuracy after every batch."""
    order = np.random.default_rng(seed).permutation(len(y))
    rows, truth = X[order], y[order]
    model, accuracies = SeqGraphMED(random_state=0, experts=()), []
    for start in range(0, 1400, 100):
        batch = rows[start : start + 100]
        model.partial_fit(batch, [None] * 100)  # the rows, without labels
        chosen = choose(model, batch, 2)
        answers = truth[start : start + 100][chosen]  # somebody labels two rows
        model.partial_fit(batch[chosen], answers, new_points=False)
        accuracies.append(model.score(rows[1400:], truth[1400:]))
    return accuracies


rng = np.random.default_rng(1)
rules = {
    "chosen by query": query,
    "at random": lambda model, rows, n: rng.choice(len(rows), n, replace=False),
}
curves = {name: np.array([run(seed, rule) for seed in range(4)]) for name, rule in rules.items()}
for name, values in curves.items():
    print(f"28 labels {name}: {values[:, -1].mean():.1%}")

# %%
# Mean of four orders of the digits, with a band of one standard error.

figure, axes = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
plotting.accuracy_curves(axes, curves, title="Digits, two labels per batch of 100 rows")
axes.set_xlabel("batches of 100 rows")

# %%
# The rows can be labeled on a page in the browser, which asks for the most informative ones:
# :doc:`/labeling`.
