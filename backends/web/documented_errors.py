"""Documents the errors of each operation in the OpenAPI document: statuses, and OpenAI's error format."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from fastapi import FastAPI

from backends.web.request_ids import HEADER

Takes = Callable[[str, str, Mapping[str, Any]], bool]  # path, method in upper case, operation

_NAME: Final = "Error"
_SCHEMA: Final[dict[str, Any]] = {
    "title": _NAME,
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string", "description": "What is wrong, which limit holds, and what to do"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"], "description": "The field at fault"},
                "code": {"type": "string", "description": "A stable name, for programs"},
            },
        }
    },
}
_WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


def _takes_input(path: str, method: str, operation: Mapping[str, Any]) -> bool:
    return "requestBody" in operation or bool(operation.get("parameters"))


def _takes_body(path: str, method: str, operation: Mapping[str, Any]) -> bool:
    return "requestBody" in operation


def _names_something(path: str, method: str, operation: Mapping[str, Any]) -> bool:
    return "{" in path or method in _WRITES


def _writes(path: str, method: str, operation: Mapping[str, Any]) -> bool:
    return method in _WRITES


def _needs_token(path: str, method: str, operation: Mapping[str, Any]) -> bool:
    return path.startswith("/v1/") or "security" in operation


def _signs_in(path: str, method: str, operation: Mapping[str, Any]) -> bool:
    return path.startswith("/sign-in")


def _always(path: str, method: str, operation: Mapping[str, Any]) -> bool:
    return True


_ERRORS: Final[tuple[tuple[int, str, tuple[Takes, ...]], ...]] = (
    (400, "A field is missing, of another type, or beyond its limit; `param` names it", (_takes_input,)),
    (401, "The token or password is missing, unknown, expired or revoked", (_needs_token, _signs_in)),
    (403, "The token's role may not do this", (_needs_token, _signs_in)),
    (404, "What the path or the body names does not exist, or not for this token", (_names_something,)),
    (409, "It exists already, is in use, or was changed meanwhile", (_writes,)),
    (413, "The body is too large", (_takes_body,)),
    (429, "Too many tries; `Retry-After` says how many seconds to wait", (_signs_in,)),
    (500, "A fault of this process; its log has the request's id", (_always,)),
    (502, "Another service that this needs answered wrongly", (_signs_in,)),
    (503, "A database or another service that this needs is away", (_always,)),
)


def document_errors(app: FastAPI) -> None:
    """Add each operation's errors to the app's OpenAPI document, replacing FastAPI's own."""
    build = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _with_errors(build())
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation extends it


def _with_errors(document: dict[str, Any]) -> dict[str, Any]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _add_errors(path, method.upper(), operation)
    schemas: dict[str, Any] = document.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas[_NAME] = _SCHEMA
    return document


def _add_errors(path: str, method: str, operation: dict[str, Any]) -> None:
    responses: dict[str, Any] = operation["responses"]
    responses.pop("422", None)  # FastAPI's default for every operation; 400 is sent instead
    for status, description, conditions in _ERRORS:
        if str(status) in responses or not any(takes(path, method, operation) for takes in conditions):
            continue
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{_NAME}"}}}
        responses[str(status)] = {"description": description, "content": content}
    identified = {"description": "The answer's id", "schema": {"type": "string", "format": "uuid"}}
    for response in responses.values():
        response.setdefault("headers", {})[HEADER] = identified
