"""Opens the database with every table of what applications keep.

The modules that declare tables are loaded together, before the first transaction: a table is made as it is declared,
and one whose module another thread was loading at that moment would be made without its columns.
"""

from typing import Final

from backends.objects import batches, files, responses
from backends.objects.database import ObjectsDatabase

TABLE_MODULES: Final = (files, batches, responses)


def open_objects(url: str) -> ObjectsDatabase:
    """Open the database of a SQLAlchemy URL. Raises ConfigurationError on an unusable one."""
    return ObjectsDatabase(url)
