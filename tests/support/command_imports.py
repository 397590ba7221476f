"""What a process needs before it can run the command at once: imports, and compiled loops."""

import numpy as np

import seqmed.active
import seqmed.cli.decision_options
import seqmed.cli.lock
import seqmed.cli.outputs
import seqmed.cli.parameters
import seqmed.cli.prequential
import seqmed.measures
import seqmed.plotting  # noqa: F401
from seqmed import SeqGraphMED, SeqLapMED

for model in (SeqLapMED(random_state=0), SeqGraphMED(random_state=0)):
    model.partial_fit(np.arange(12.0)[:, None], np.arange(12) % 3)
