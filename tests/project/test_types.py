"""mypy finds misspelled methods in the programs of users, although scikit-learn has no types."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"
RIGHT = """
import numpy as np
import seqmed

X, y = np.zeros((4, 2)), [0, 1, 0, 1]
loaded = seqmed.load("model")
print(loaded.partial_fit(X, y).predict_proba(X).sum(), loaded.score(X, y), loaded.classes_)
if isinstance(loaded, seqmed.StreamPipeline):
    print(loaded["table"], loaded.named_steps)
if isinstance(loaded, seqmed.SeqGraphMED):
    print(loaded.graph_weight_ + 1.0)
pipeline = seqmed.make_stream_pipeline(seqmed.SeqMED(), kinds={"a": "text"}, decimal=",")
pipeline.fit(X, y, sample_weight=[1.0] * 4).partial_fit(X, y, model__sample_weight=[1.0] * 4)
pipeline.set_output(transform="pandas").retract(X).set_params(model__C=2.0)
seqmed.save(pipeline, "model")
seqmed.save(seqmed.SeqMED().set_fit_request(sample_weight=True).fit(X, y), "model")
encoder = seqmed.TableEncoder().fit(X).set_output(transform="pandas")
print(encoder.fit_transform(X), encoder.get_params())
"""
WRONG = """
import seqmed

seqmed.load("model").partial_fti([[0.0]], [0])
seqmed.make_stream_pipeline().partial_fti([[0.0]], [0])
seqmed.SeqMED().partial_fti([[0.0]], [0])
seqmed.SeqGraphMED().fit([[0.0]], [0]).predict_probs([[0.0]])
seqmed.PrequentialSearch(seqmed.SeqMED(), {}).best_param_
seqmed.TableEncoder().transfrom([[0.0]])
seqmed.load(3)
seqmed.save("model", seqmed.SeqMED())
"""


def test_mypy_strict_on_programs_of_users(tmp_path):
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(WRONG)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-pretty"]
    result = subprocess.run(
        [*command, "--cache-dir", str(tmp_path / "cache"), "right.py", "wrong.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(SRC)},
        capture_output=True,
        text=True,
        check=False,
    )
    found = {tuple(line.split(":")[:2]) for line in result.stdout.splitlines() if "error:" in line}
    expected = range(4, 1 + len(WRONG.splitlines()))
    assert found == {("wrong.py", str(line)) for line in expected}, result.stdout + result.stderr
