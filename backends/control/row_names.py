"""Names of control database rows in errors and commands: the table and the key, separated by /."""

from contracts.control import Base


def row_name(entity: type[Base], *key: str) -> str:
    """Return the name of a row by its entity and key, such as "targets/main/one"."""
    return "/".join((entity.__tablename__, *key))
