"""
What do the experts weigh, and why this class?
==============================================

`SeqGraphMED` pools the probabilities of several experts. Every expert predicts each labeled row
before it learns it, and these predictions set the weights. `explain` takes a prediction apart.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer

from seqmed import SeqGraphMED

data = load_breast_cancer()
rng = np.random.default_rng(0)
order = rng.permutation(len(data.target))
X, y = data.data[order], data.target_names[data.target[order]]
labels = np.where(rng.random(len(y)) < 0.4, y, None)  # None: no label

model, weights, n_labels = SeqGraphMED(random_state=0), [], []
for start in range(0, 500, 25):
    model.partial_fit(X[start : start + 25], labels[start : start + 25])
    weights.append(model.expert_weights_)
    n_labels.append(sum(each is not None for each in labels[: start + 25]))
print(f"accuracy on other rows: {model.score(X[500:], y[500:]):.1%}")

# %%
# With few labels the prior decides, then the record of predictions does. On these measurements of
# tumours the classes are almost divided by a plane, so that logistic regression gets a large part.

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
names = [name for name in weights[-1] if any(each.get(name, 0) > 0.01 for each in weights)]
areas = [[each.get(name, 0.0) for each in weights] for name in names]
axes.stackplot(n_labels, areas, labels=names, alpha=0.85)
axes.set(xlabel="labels", ylabel="weight", xlim=(n_labels[0], n_labels[-1]), ylim=(0, 1))
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)

# %%
# Why this class?
# ---------------
#
# The row of which the model is least sure.

test = X[500:]
unsure = np.argmin(model.predict_proba(test).max(axis=1))
(explanation,) = model.explain(test[[unsure]], n=4)
print(f"predicted: {explanation.label}, probability {explanation.probability:.2f}")
for member in explanation.members:
    probability = member.probabilities[explanation.classes.index(explanation.label)]
    print(f"  {member.name}: weight {member.weight:.2f}, probability {probability:.2f}")

# %%
# The votes of the experts are sums. These are the largest terms of two of them.

votes = [vote for vote in explanation.votes if vote.columns][:2]
figure, panels = plt.subplots(1, len(votes), figsize=(9, 3.2), layout="constrained")
for axes, vote in zip(np.atleast_1d(panels), votes, strict=True):
    # columns of arrays are named x0, x1 and so on
    parts = sorted(vote.columns, key=lambda part: part.contribution)
    texts = [str(data.feature_names[int(part.name[1:])]) for part in parts]
    values = [part.contribution for part in parts]
    axes.barh([*texts, "all others"], [*values, vote.rest],
              color=["C0" if each > 0 else "C3" for each in [*values, vote.rest]])  # fmt: skip
    axes.axvline(0, color="0.3", linewidth=0.8)
    axes.set(title=f"{vote.expert}, for {explanation.label}", xlabel=vote.unit)

# %%
# Contributions say how a fitted expert comes to its vote. They do not say what would happen if a
# cell were different: :doc:`/guide/predictions`.
