"""Tags at the end of a text that is still growing."""


def begun_tag(text: str, tag: str) -> int:
    """Return the length of the longest end of `text` that is the beginning of `tag`, but not all of it."""
    for length in range(min(len(text), len(tag) - 1), 0, -1):
        if text.endswith(tag[:length]):
            return length
    return 0
