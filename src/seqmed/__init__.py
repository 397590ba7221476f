"""Maximum-margin classifiers that learn from a stream when most of the data has no labels."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from seqmed.estimators import SeqLapMED, SeqMED

if TYPE_CHECKING:
    from seqmed import active
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

# Where to find what is imported when it is first asked for.
_MODULES = {
    "InputDriftWarning": "pipeline",
    "PrequentialSearch": "search",
    "SemiSupervisedSplit": "splitting",
    "StreamPipeline": "pipeline",
    "load": "persistence",
    "save": "persistence",
}


def __getattr__(name: str) -> Any:
    if name == "active":
        return import_module("seqmed.active")
    if name not in _MODULES:
        raise AttributeError(f"module 'seqmed' has no attribute {name!r}")
    return getattr(import_module(f"seqmed.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
