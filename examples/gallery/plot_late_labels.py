"""
What if labels come days after their rows?
==========================================

Rows are learned without a label when they arrive. Their labels are learned later, with
``new_points=False``. Labels that turn out to be wrong are removed with ``retract``.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from seqmed import SeqGraphMED, plotting

X, y = load_digits(return_X_y=True)


def stream(seed):
    """Return batches of 100 digits, of which 10 % get a label, and test rows."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    rows, truth = X[order], y[order]
    labels = np.where(rng.random(len(y)) < 0.1, truth, -1)
    batches = [(rows[i : i + 100], labels[i : i + 100]) for i in range(0, 1400, 100)]
    return batches, rows[1400:], truth[1400:]


def run(seed, delay):
    """Return test accuracies if labels arrive this number of batches after their rows."""
    batches, X_test, y_test = stream(seed)
    model, accuracies = SeqGraphMED(random_state=0, experts=()), []
    for number, (rows, labels) in enumerate(batches):
        if delay == 0:
            model.partial_fit(rows, labels)
        else:
            model.partial_fit(rows, [None] * len(rows))  # rows only
            if number >= delay:
                model.partial_fit(*batches[number - delay], new_points=False)  # their labels
        accuracies.append(model.score(X_test, y_test) if number >= delay else np.nan)
    return accuracies


curves = {
    name: np.array([run(seed, delay) for seed in range(3)])
    for name, delay in (("with their rows", 0), ("two batches later", 2), ("five batches later", 5))
}
figure, axes = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
plotting.accuracy_curves(axes, curves, title="Digits, 10 % labels that arrive ...")
axes.set_xlabel("batches of 100 rows")

# %%
# A label that comes late is worth as much as one that comes at once, when it has come. With
# ``experts=()``, the model is the core alone, which is faster.
#
# Labels that were wrong
# ----------------------
#
# Of 200 labels, those of all ones are wrong. They are retracted, and then corrected.

batches, X_test, y_test = stream(0)
model = SeqGraphMED(random_state=0, experts=())
for rows, _ in batches:
    model.partial_fit(rows, [None] * len(rows))
rows = np.concatenate([rows for rows, _ in batches[:2]])
order = np.random.default_rng(0).permutation(len(y))
truth = y[order][:200]
ones = truth == 1
model.partial_fit(rows, np.where(ones, 7, truth), new_points=False)
print(f"ones labeled as sevens: {model.score(X_test, y_test):.1%}")
model.retract(rows[ones])
model.partial_fit(rows[ones], truth[ones], new_points=False)
print(f"corrected:              {model.score(X_test, y_test):.1%}")

# %%
# The rules, and the same on the command line: :doc:`/guide/late-labels`.
