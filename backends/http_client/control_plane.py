"""Common parts of the clients of the control plane's HTTP API: methods, paging, and escaping of names in paths."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

_PAGE_ROWS: Final = 1_000


class ControlPlaneVerbs(ABC):
    """HTTP methods of the API. Each returns the response's JSON and raises what `call` raises."""

    @abstractmethod
    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        query: Mapping[str, str | int] | None = None,
    ) -> dict[str, Any]:
        """Send a request; return the response's JSON. Raises a TollkeeperError if it is refused or unanswered."""

    def get(self, path: str, **query: str | int) -> dict[str, Any]:
        """Return one object, or one page of a list (`data`, `has_more`)."""
        return self.call("GET", path, query=query)

    def get_all(self, path: str, key: str = "id", **query: str | int) -> list[dict[str, Any]]:
        """Return a whole list, read page by page; `key` is the field that the next page starts after."""
        rows: list[dict[str, Any]] = []
        while True:
            after = {"after": str(rows[-1][key])} if rows else {}
            page = self.call("GET", path, query={"limit": _PAGE_ROWS, **query, **after})
            rows.extend(page["data"])
            if not page["has_more"]:
                return rows

    def post(self, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        """Create an object, or start an action."""
        return self.call("POST", path, body)

    def patch(self, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        """Change the fields in `body`; the others keep their values."""
        return self.call("PATCH", path, body)

    def put(self, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        """Create or replace an object."""
        return self.call("PUT", path, body)

    def delete(self, path: str) -> dict[str, Any]:
        """Remove or revoke an object."""
        return self.call("DELETE", path)


def path_segment(text: str) -> str:
    """Return a name escaped as one path segment. Dots are escaped too, because ".." would address the parent."""
    return quote(text, safe="").replace(".", "%2E")
