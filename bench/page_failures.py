"""What tells a page of the dashboard that failed, was refused or waits from one that was drawn."""

from typing import Final

# Titles of this level are those of states alone: whatever stands under one is not a page.
TITLE: Final = "#### "
DRAWN_TITLES: Final = frozenset({"Nothing in this range"})  # a state too, but what was asked was looked for
_SIGNS: Final = (":material/error:", ":material/lock:", "EXCEPTION ")


def failure_of(words: str) -> str:
    """Return the line by which a page (its words, as Markdown) says that it or a part of it failed; empty: none
    does.
    """
    for line in words.splitlines():
        is_state = line.startswith(TITLE) and line.removeprefix(TITLE).strip() not in DRAWN_TITLES
        if is_state or any(sign in line for sign in _SIGNS):
            return line
    return ""
