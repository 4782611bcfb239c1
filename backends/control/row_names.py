"""How a row of the control database is named in errors and commands: its table and its key, parts with / between."""

from contracts.control import Base


def row_name(entity: type[Base], *key: str) -> str:
    """Return the name of a row by its entity and key, such as "targets/main/one"."""
    return "/".join((entity.__tablename__, *key))
