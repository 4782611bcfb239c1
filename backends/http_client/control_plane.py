"""What clients of the control plane's HTTP API have in common: its verbs, lists page by page, and names in paths."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

_PAGE_ROWS: Final = 1_000


class ControlPlaneVerbs(ABC):
    """The verbs of the API. Each returns the answer's JSON and raises what `call` raises."""

    @abstractmethod
    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        query: Mapping[str, str | int] | None = None,
    ) -> dict[str, Any]:
        """Send one request; return the answer's JSON. Raise a TollkeeperError if it is refused or not answered."""

    def get(self, path: str, **query: str | int) -> dict[str, Any]:
        """Read one object, or one page of a list (`data`, `has_more`)."""
        return self.call("GET", path, query=query)

    def get_all(self, path: str, key: str = "id", **query: str | int) -> list[dict[str, Any]]:
        """Read a whole list, page by page; `key` is the field that pages follow."""
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
        """Change the fields in `body`; the others stay."""
        return self.call("PATCH", path, body)

    def put(self, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        """Create or replace an object."""
        return self.call("PUT", path, body)

    def delete(self, path: str) -> dict[str, Any]:
        """Remove or revoke an object."""
        return self.call("DELETE", path)


def path_segment(text: str) -> str:
    """Write a name as one segment of a path, dots too: ".." would climb to what holds it."""
    return quote(text, safe="").replace(".", "%2E")
