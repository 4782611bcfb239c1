"""The seam for an engine's plain text: most of what it streams is one token and its text."""

from collections.abc import Callable


class TextSink:
    """A sink that may take plain text without a delta for each token."""

    def text_relay(self, index: int) -> Callable[[str, int], None] | None:
        """Give what takes a token's text and when its engine made it, in place of `delta`, for one choice.

        `None`: each token is to be told by `delta`. Asked once a choice has had output.
        """
        return None
