"""
How accurate is a model with few labels?
========================================

Handwritten digits arrive in batches of 100. Of every hundred rows, five have a label. `SeqGraphMED`
learns all rows once. `SeqMED` learns the labeled rows once. The logistic regression is fitted again
to all labels so far.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from seqmed import SeqGraphMED, SeqMED, plotting

X, y = load_digits(return_X_y=True)


def run(seed):
    """Return the test accuracies of three classifiers after every batch."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    rows, truth = X[order], y[order]
    labels = np.where(rng.random(len(y)) < 0.05, truth, -1)
    test = slice(1400, None)
    graph, margin = SeqGraphMED(random_state=0), SeqMED()
    accuracies = {"SeqGraphMED": [], "SeqMED, labels only": [], "logistic regression, refitted": []}
    for start in range(0, 1400, 100):
        batch = slice(start, start + 100)
        known = np.flatnonzero(labels[: start + 100] != -1)
        refitted = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
        models = (
            graph.partial_fit(rows[batch], labels[batch]),
            margin.partial_fit(rows[batch], labels[batch]),
            refitted.fit(rows[known], labels[known]),
        )
        for name, model in zip(accuracies, models, strict=True):
            accuracies[name].append(model.score(rows[test], truth[test]))
    return accuracies


runs = [run(seed) for seed in range(3)]
curves = {name: np.array([each[name] for each in runs]) for name in runs[0]}
for name, values in curves.items():
    print(f"{name}: {values[:, -1].mean():.1%} after 1400 rows, about 70 of them with a label")

# %%
# Mean of three draws of labels, with a band of one standard error.

figure, axes = plt.subplots(figsize=(6.4, 4.6), layout="constrained")
plotting.accuracy_curves(axes, curves, title="Digits, 5 % labels")
axes.set_xlabel("batches of 100 rows")

# %%
# In the first batches there are fewer labels than classes can be told apart with. The difference is
# largest in the middle, and shrinks as labels arrive. With a label in every row it is small:
# :doc:`/guide/few-labels`.
