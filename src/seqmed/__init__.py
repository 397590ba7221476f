"""Maximum-margin classifiers that learn from a stream when most of the data has no labels."""

from seqmed.estimators import SeqLapMED, SeqMED
from seqmed.search import PrequentialSearch

__version__ = "0.1.0"

__all__ = ["PrequentialSearch", "SeqLapMED", "SeqMED", "__version__"]
