"""
What can I do with 50 labels on text?
=====================================

The messages of ``seqmed example spam``: five weeks of short messages, ham or spam, with typing
errors. Fifty of 1200 messages have a label. `make_stream_pipeline` learns all of them, a week at a
time. The labels are those of random messages, or of messages that `query` chooses. The two
classifiers of scikit-learn learn the tf-idf weights of the labeled messages.
"""

from importlib.resources import files

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from seqmed import make_stream_pipeline, query

folder = files("seqmed") / "examples" / "spam"  # what `seqmed example spam` copies
weeks = [pd.read_csv(folder / f"week-{number}.csv") for number in range(1, 6)]
answers = pd.read_csv(folder / "answers.csv").set_index("message")["kind"]
for week in weeks:  # the labels that week-1.csv to week-5.csv leave out are in answers.csv
    week["truth"] = week["kind"].fillna(week["message"].map(answers))
messages = pd.concat(weeks, ignore_index=True)
test = pd.read_csv(folder / "holdout.csv")
print(messages[["body", "truth"]].head(3).to_string(index=False))

# %%
# With a number of labels, every classifier learns, and predicts 300 other messages.


def queried(n_labels, seed):
    """Return a pipeline for which `query` chooses a fifth of the labels in every week."""
    model = make_stream_pipeline(kinds={"body": "text"}, random_state=seed)
    for start in range(0, len(messages), 240):
        week = messages[start : start + 240]
        model.partial_fit(week[["body"]], [None] * len(week))  # without labels
        chosen = week.iloc[query(model, week[["body"]], n_labels // 5)]
        model.partial_fit(chosen[["body"]], chosen["truth"], new_points=False)  # their labels
    return model


def accuracies(n_labels, seed):
    """Return the accuracy of every classifier on the test messages."""
    chosen = np.random.default_rng(seed).choice(len(messages), n_labels, replace=False)
    known = messages.loc[chosen]
    labels = messages["truth"].where(messages.index.isin(chosen), None)
    ours = make_stream_pipeline(kinds={"body": "text"}, random_state=0)
    for start in range(0, len(messages), 240):  # a week
        week = slice(start, start + 240)
        ours.partial_fit(messages[["body"]][week], labels[week])
    found = {
        "seqmed, labels chosen by query": queried(n_labels, seed),
        "seqmed": ours,
    }
    found = {name: model.score(test[["body"]], test["kind"]) for name, model in found.items()}
    for name, classifier in (
        ("logistic regression", LogisticRegression(C=10.0)), ("linear SVM", LinearSVC()),
    ):  # fmt: skip
        model = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), classifier)
        found[name] = model.fit(known["body"], known["truth"]).score(test["body"], test["kind"])
    return found


numbers = [20, 50, 100, 200]
results = {n: pd.DataFrame([accuracies(n, seed) for seed in range(3)]) for n in numbers}
print(results[50].mean().map("{:.1%}".format).to_string())

# %%
# Mean of three draws of labels, with standard errors.

figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
for name in results[50]:
    means = [results[n][name].mean() for n in numbers]
    axes.errorbar(numbers, means, [results[n][name].sem() for n in numbers], marker="o", capsize=3,
                  label=name)  # fmt: skip
axes.set(xscale="log", xlabel="labels among 1200 messages", ylabel="accuracy on 300 messages")
axes.set_xticks(numbers, numbers)
axes.minorticks_off()
axes.grid(alpha=0.3)
axes.legend()

# %%
# Which messages have a label matters more than the classifier. `seqmed label` asks for them on a
# page in the browser: :doc:`/labeling`.
