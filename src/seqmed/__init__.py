"""Maximum-margin classifiers that learn from a stream when most of the data has no labels."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqmed.estimators.graph_propagation import GraphPropagation
    from seqmed.estimators.seqgraphmed import ConceptChangeWarning, SeqGraphMED
    from seqmed.estimators.seqlapmed import SeqLapMED
    from seqmed.estimators.seqmed import SeqMED
    from seqmed.model_file import load, save
    from seqmed.selection.queries import expected_regret, query
    from seqmed.selection.search import PrequentialSearch
    from seqmed.selection.splitting import SemiSupervisedSplit
    from seqmed.tables.encoder import TableEncoder
    from seqmed.tables.stream_pipeline import StreamPipeline, make_stream_pipeline

__version__ = "0.2.0"

__all__ = [
    "ConceptChangeWarning",
    "GraphPropagation",
    "PrequentialSearch",
    "SemiSupervisedSplit",
    "SeqGraphMED",
    "SeqLapMED",
    "SeqMED",
    "StreamPipeline",
    "TableEncoder",
    "__version__",
    "expected_regret",
    "load",
    "make_stream_pipeline",
    "query",
    "save",
]

# Modules of the public names. Each module is imported on first use, because importing scikit-learn
# takes about a second and would delay every shell completion.
MODULES = {
    "ConceptChangeWarning": "estimators.seqgraphmed",
    "GraphPropagation": "estimators.graph_propagation",
    "PrequentialSearch": "selection.search",
    "SemiSupervisedSplit": "selection.splitting",
    "SeqGraphMED": "estimators.seqgraphmed",
    "SeqLapMED": "estimators.seqlapmed",
    "SeqMED": "estimators.seqmed",
    "StreamPipeline": "tables.stream_pipeline",
    "TableEncoder": "tables.encoder",
    "expected_regret": "selection.queries",
    "load": "model_file",
    "make_stream_pipeline": "tables.stream_pipeline",
    "query": "selection.queries",
    "save": "model_file",
}


def __getattr__(name: str) -> Any:
    """Import a public name or a submodule on first use."""
    if name in MODULES:
        globals()[name] = value = getattr(import_module(f"seqmed.{MODULES[name]}"), name)
        return value
    module = f"seqmed.{name}"
    try:
        if not name.startswith("_"):
            return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
    raise AttributeError(f"module 'seqmed' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
