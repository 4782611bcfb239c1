"""The page that lists an API's operations: plain HTML without scripts or external resources."""

from collections.abc import Mapping
from html import escape
from typing import Any, Final

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

PATH: Final = "/docs"
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #1c2330 }
h2 { margin-top: 2rem } table { border-collapse: collapse; width: 100% }
td { border-top: 1px solid #d5dae3; padding: .35rem .75rem .35rem 0; vertical-align: top }
code { font: 14px/1.5 ui-monospace, monospace; overflow-wrap: anywhere } .description { white-space: pre-line }
@media (prefers-color-scheme: dark) { body { background: #12161d; color: #dfe4ec } td { border-color: #333c4a }
  a { color: #8ab4ff } }
"""


def install_api_page(app: FastAPI) -> None:
    """Serve the page at /docs. The app must be created with `docs_url=None` and `redoc_url=None`."""

    async def page() -> HTMLResponse:
        return HTMLResponse(_page(app.openapi()), headers=_HEADERS)

    app.add_api_route(PATH, page, methods=["GET"], include_in_schema=False)


def _page(schema: Mapping[str, Any]) -> str:
    title, description = escape(schema["info"]["title"]), escape(schema["info"].get("description", "").strip())
    by_tag: dict[str, list[str]] = {}
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            tag = next(iter(operation.get("tags", ())), "other")
            by_tag.setdefault(tag, []).append(_row(method, path, operation))
    sections = "".join(
        f"<h2>{escape(tag)}</h2>\n<table>\n{''.join(rows)}</table>\n" for tag, rows in sorted(by_tag.items())
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>\n'
        f'<body>\n<h1>{title}</h1>\n<p class="description">{description}</p>\n'
        '<p>Fields and answers of every operation: <a href="openapi.json">openapi.json</a> (OpenAPI 3.1), which '
        f"API clients and generators read.</p>\n{sections}</body>\n</html>\n"
    )


def _row(method: str, path: str, operation: Mapping[str, Any]) -> str:
    parameters = ", ".join(
        f"<code>{escape(each['name'])}</code>" for each in operation.get("parameters", ()) if each["in"] == "query"
    )
    body = "<code>JSON body</code>" if "requestBody" in operation else ""
    return (
        f"<tr><td><code>{escape(method.upper())}</code></td><td><code>{escape(path)}</code></td>"
        f"<td>{escape(operation.get('summary', ''))}</td><td>{', '.join(filter(None, (parameters, body)))}</td></tr>\n"
    )
