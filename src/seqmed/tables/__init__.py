"""Raw tables: columns of any kind become features.

A table goes through these files: `frames` makes it a table of pyarrow, `kinds` chooses the kind of
each column by the cells of the first batch and converts cells to its type (`cells`, `dates`), and
`features` converts them to features. `encoder` has the transformer, and `stream_pipeline` puts it
before a classifier.
"""

from seqmed.tables.cells import TableError
from seqmed.tables.encoder import TableEncoder

__all__ = ["TableEncoder", "TableError"]
