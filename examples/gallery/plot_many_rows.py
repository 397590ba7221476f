"""
What does a long stream cost?
=============================

A stream of 60,000 made-up rows in batches of 2000, of which 2 % have a label. With a budget, memory
and the time of a batch do not grow with the number of rows.
"""

import time

import matplotlib.pyplot as plt
import numpy as np

from seqmed import SeqGraphMED, SeqMED

rng = np.random.default_rng(0)
centres = rng.normal(scale=1.3, size=(12, 10))


def batch_of(n):
    """Return rows of twelve clusters, the classes of which alternate."""
    cluster = rng.integers(12, size=n)
    return centres[cluster] + rng.normal(size=(n, 10)), cluster % 2


X_test, y_test = batch_of(2000)
model = SeqGraphMED(SeqMED(budget=500), graph_memory=4000, experts=(), random_state=0)
seconds, kept, accuracies = [], [], []
for _ in range(30):
    X, y = batch_of(2000)
    labels = np.where(rng.random(2000) < 0.02, y, -1)
    begin = time.process_time()
    model.partial_fit(X, labels)
    seconds.append(time.process_time() - begin)
    kept.append(model.n_kept_)
    accuracies.append(model.score(X_test, y_test))
print(f"60,000 rows, 2 % labels: {accuracies[-1]:.1%} on other rows, {kept[-1]:,} rows kept")

# %%
# ``graph_memory`` bounds the rows that the graph keeps, ``budget`` the points of the margin expert.
# The first batch includes the compilation of the solver if nothing has been compiled before.

rows = 2000 * np.arange(1, 31)
figure, panels = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
panels[0].plot(rows, accuracies, marker="o", markersize=3)
panels[0].set(ylabel="test accuracy")
panels[1].plot(rows, kept, color="C1", marker="o", markersize=3)
panels[1].set(ylabel="kept rows", ylim=(0, None))
panels[2].plot(rows[1:], seconds[1:], color="C2", marker="o", markersize=3)
panels[2].set(ylabel="processor seconds of a batch", ylim=(0, None))
for axes in panels:
    axes.set_xlabel("rows of the stream")
    axes.grid(alpha=0.3)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k")

# %%
# A million rows on the command line, with time and memory: :doc:`/performance`. More machines:
# :doc:`/scaling`. A larger graph: :doc:`/gpu`.
