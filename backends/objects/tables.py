"""Opens the objects database with all of its tables.

The modules that declare tables are imported together before the first transaction, because a table that another thread
was declaring at that moment would be created without its columns.
"""

from typing import Final

from backends.objects import batches, files, responses
from backends.objects.database import ObjectsDatabase

TABLE_MODULES: Final = (files, batches, responses)


def open_objects(url: str) -> ObjectsDatabase:
    """Open the objects database at a SQLAlchemy URL. Raises ConfigurationError if it is unusable."""
    return ObjectsDatabase(url)
