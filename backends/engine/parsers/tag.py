"""Finds incomplete tags at the end of a text that is still growing."""


def begun_tag(text: str, tag: str) -> int:
    """Return the length of the longest suffix of `text` that is an incomplete start of `tag`."""
    for length in range(min(len(text), len(tag) - 1), 0, -1):
        if text.endswith(tag[:length]):
            return length
    return 0
