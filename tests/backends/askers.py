"""Who asks a server in tests."""

from backends.http_client.http_connection import ReplyEndListener


class AsTold(ReplyEndListener):
    """Keeps how each reply ended."""

    def __init__(self, ends: list[Exception | None]) -> None:
        self._ends = ends

    def reply_ended(self, error: Exception | None) -> None:
        """Keep it."""
        self._ends.append(error)
