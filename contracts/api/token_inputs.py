"""Text inputs of OpenAI's older APIs: a text, texts, token ids, or lists of token ids."""

from typing import Annotated

from msgspec import Meta

from contracts.errors import InvalidRequest

TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
TokenInput = str | list[str | TokenId | list[TokenId]]


def entries_of(field: str, given: TokenInput) -> list[str | list[int]]:
    """Return the single texts and token lists of a field. Raises InvalidRequest on ids beside other entries."""
    if isinstance(given, str):
        return [given]
    numbers = [one for one in given if isinstance(one, int)]
    if not numbers:
        return [one for one in given if not isinstance(one, int)]
    if len(numbers) < len(given):
        raise InvalidRequest(f"{field} mixes token ids with other entries; send one list for each", param=field)
    return [numbers]


def count_of(given: TokenInput) -> int:
    """Return how many texts and token lists a field holds."""
    return 1 if isinstance(given, str) or (given and isinstance(given[0], int)) else len(given)
