"""
Which parameters suit my stream?
================================

`PrequentialSearch` learns the stream with every combination of parameters. It predicts with the one
that has had the highest accuracy recently, and drops those that are significantly worse.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from seqmed import PrequentialSearch, SeqMED

X, y = make_moons(3000, noise=0.25, random_state=0)
labels = np.where(np.random.default_rng(0).random(len(y)) < 0.2, y, -1)

grid = {"gamma": [0.01, 0.1, 1.0, 10.0, 100.0], "C": [1.0, 10.0, 100.0]}
search = PrequentialSearch(SeqMED(), grid)
for start in range(0, 2000, 100):
    search.partial_fit(X[start : start + 100], labels[start : start + 100])
print(search.best_params_)
print(f"accuracy on other rows: {search.score(X[2000:], y[2000:]):.1%}")

# %%
# Prequential accuracy of every candidate: no label is learned before it is predicted, so that no
# rows need be set aside. A star marks candidates that were dropped before the end of the stream.

results = search.results_
figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
cells = np.full((len(grid["C"]), len(grid["gamma"])), np.nan)
for place, params in enumerate(results["params"]):
    row, column = grid["C"].index(params["C"]), grid["gamma"].index(params["gamma"])
    cells[row, column] = results["accuracy"][place]
    mark = " *" if results["dropped"][place] else ""
    ground = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 2}
    text = f"{cells[row, column]:.0%}{mark}"
    axes.text(column, row, text, ha="center", va="center", bbox=ground)
picture = axes.imshow(cells, cmap="Blues", aspect="auto")
axes.set_xticks(range(len(grid["gamma"])), grid["gamma"])
axes.set_yticks(range(len(grid["C"])), grid["C"])
axes.set(xlabel="gamma", ylabel="C")
figure.colorbar(picture, label="prequential accuracy")

# %%
# The parameters of `SeqGraphMED`, and what they are good for: :doc:`/guide/choosing-parameters`.
