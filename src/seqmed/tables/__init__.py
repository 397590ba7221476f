"""Raw tables: columns of any kind become features.

Columns are found by name. The first batch decides what becomes of each of them (`kinds`), and
measures it (`encoding`, `dates`, `categories`, `words`). `TableEncoder` is the transformer, and
`stream_pipeline` puts it before a classifier.
"""

from seqmed.tables.cells import TableError
from seqmed.tables.encoder import TableEncoder

__all__ = ["TableEncoder", "TableError"]
