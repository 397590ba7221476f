"""
What do unlabeled rows change?
==============================

Two spirals with 14 labels among 1000 rows. `SeqMED` learns the 14 labeled rows. `SeqGraphMED`
learns all rows: a label spreads along the spiral on which it lies.
"""

import matplotlib.pyplot as plt
import numpy as np

from seqmed import SeqGraphMED, SeqMED

rng = np.random.default_rng(0)


def spirals(n):
    """Return rows of two spirals and their classes."""
    y = rng.integers(0, 2, n)
    radius = np.sqrt(rng.uniform(0.05, 1.0, n))
    angle = 2.5 * np.pi * radius + np.pi * y
    X = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    return X + rng.normal(scale=0.03, size=X.shape), y


X, y = spirals(1000)
X_test, y_test = spirals(1000)
labels = np.full(1000, -1)  # -1 marks a row without a label
shown = np.concatenate([rng.choice(np.flatnonzero(y == c), 7, replace=False) for c in (0, 1)])
labels[shown] = y[shown]

# %%
# Both classifiers learn ten batches of 100 rows.

models = {"SeqMED: labels only": SeqMED(), "SeqGraphMED: all rows": SeqGraphMED(random_state=0)}
for model in models.values():
    for start in range(0, 1000, 100):
        batch = slice(start, start + 100)
        model.partial_fit(X[batch], labels[batch], classes=[0, 1])

# %%
# The colour of the ground is the predicted class. Large points have a label, grey points have none.

grid = np.linspace(-1.25, 1.25, 150)
points = np.array(np.meshgrid(grid, grid)).reshape(2, -1).T
figure, panels = plt.subplots(1, 2, figsize=(8, 4.2), layout="constrained")
for axes, (name, model) in zip(panels, models.items(), strict=True):
    regions = model.predict(points).reshape(grid.size, grid.size)
    axes.contourf(grid, grid, regions, levels=[-0.5, 0.5, 1.5], colors=["C0", "C1"], alpha=0.25)
    axes.scatter(*X[labels == -1].T, s=4, color="0.45", linewidths=0)
    for c in (0, 1):
        axes.scatter(*X[labels == c].T, s=60, color=f"C{c}", edgecolors="white")
    axes.set(xticks=[], yticks=[], aspect="equal")
    axes.set_title(f"{name}\n{model.score(X_test, y_test):.0%} of 1000 new rows are correct")

# %%
# Unlabeled rows help because here rows that are close to each other have the same class. If they do
# not, the record of predictions shows it, and the graph gets a small weight:
# :doc:`/explanation/idea`.
