"""The person named as the author of a change."""

import re
from typing import Final

TOKEN_ID: Final = re.compile(r" \((tok_[0-9a-f]+)\)$")


def person_of(author: str) -> str:
    """Return the person in an author's name: the name without the id of the admin token that was used.

    Two tokens with one name are one person: a second token does not make a second person.
    """
    return TOKEN_ID.sub("", author)
