"""Maximum-margin classifiers that learn from a stream when most of the data has no labels."""

from seqmed import active
from seqmed.estimators import SeqLapMED, SeqMED
from seqmed.persistence import load, save
from seqmed.pipeline import InputDriftWarning, StreamPipeline
from seqmed.search import PrequentialSearch
from seqmed.splitting import SemiSupervisedSplit

__version__ = "0.1.0"

__all__ = [
    "InputDriftWarning",
    "PrequentialSearch",
    "SemiSupervisedSplit",
    "SeqLapMED",
    "SeqMED",
    "StreamPipeline",
    "__version__",
    "active",
    "load",
    "save",
]
