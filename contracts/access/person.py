"""The person behind the name of a change's author."""

import re
from typing import Final

TOKEN_ID: Final = re.compile(r" \((tok_[0-9a-f]+)\)$")


def person_of(author: str) -> str:
    """Return the person of an author's name: the name without the id of the admin token that they used.

    Two tokens of one name are one person: whoever makes a second token for themselves is not a second person.
    """
    return TOKEN_ID.sub("", author)
