"""The files that one batch passes: a batch must not scatter over the package again."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

import seqmed

ROOT = Path(seqmed.__file__).parent
# Files that one call enters in a fitted SeqGraphMED, without refitted experts and with them.
CEILINGS = {
    ("partial_fit", ()): 30,
    ("predict", ()): 15,
    ("partial_fit", "auto"): 34,
    ("predict", "auto"): 19,
}


def entered(call):
    """Return the file of every function of the package that a call enters, and of its caller."""
    calls = []

    def file_of(frame):
        path = Path(frame.f_code.co_filename)
        return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else None

    def profile(frame, event, _):
        name = file_of(frame) if event == "call" else None
        if name is None:
            return
        caller = frame.f_back
        while caller is not None and file_of(caller) is None:
            caller = caller.f_back
        calls.append((name, None if caller is None else file_of(caller)))

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return calls


def model_and_rows(experts):
    X, y = load_digits(return_X_y=True)
    labels = np.where(np.random.default_rng(0).random(len(y)) < 0.1, y, -1)
    model = seqmed.SeqGraphMED(experts=experts, random_state=0)
    for start in range(0, 600, 100):
        model.partial_fit(X[start : start + 100], labels[start : start + 100])
    return model, X[600:700], labels[600:700]


@pytest.mark.parametrize(("method", "experts"), CEILINGS)
def test_a_batch_enters_few_files_and_never_goes_back_up(method, experts):
    model, X, labels = model_and_rows(experts)
    arguments = (X, labels) if method == "partial_fit" else (X,)
    calls = entered(lambda: getattr(model, method)(*arguments))
    assert len({name for name, _ in calls}) <= CEILINGS[method, experts]
    door = "estimators/"
    upward = {
        (name, caller)
        for name, caller in calls
        if name.startswith(door) and caller and not caller.startswith(door)
    }
    assert not upward
