"""Error responses in OpenAI's format, including errors of FastAPI and the database."""

import logging
import math

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException

from backends.web.documented_errors import document_errors
from backends.web.invalid_input import describe_invalid
from backends.web.request_ids import HEADER, IN_SCOPE, RequestIds
from contracts.errors import (
    ControlUnavailable,
    MalformedBody,
    MethodNotAllowed,
    NotFound,
    TollkeeperError,
)

log = logging.getLogger(__name__)


def install_error_replies(app: FastAPI, process: str) -> None:
    """Make the app answer every error in OpenAI's format with a request id, and document the errors.

    `process` is the app's name in messages. Call this after adding all other middleware.
    """
    document_errors(app)
    app.add_middleware(RequestIds)  # the middleware that is added last runs first
    app.add_exception_handler(TollkeeperError, _reply_to_our_error)
    app.add_exception_handler(RequestValidationError, _reply_to_invalid_input)
    app.add_exception_handler(HTTPException, _reply_to_http_error)
    app.add_exception_handler(PoolTimeout, _reply_to_busy_database)

    async def reply_to_surprise(request: Request, error: Exception) -> JSONResponse:
        # Starlette raises the exception again after this reply, so that the server logs its traceback.
        request_id = str(request.scope.get(IN_SCOPE, ""))
        told = {"path": request.url.path, "error": type(error).__name__, "request_id": request_id}
        log.error("request_crashed", extra=told)
        reply = error_reply(TollkeeperError(f"the {process} failed on this request; its log says where"))
        if request_id:
            reply.headers[HEADER] = request_id  # this reply does not pass the middleware that adds it
        return reply

    app.add_exception_handler(Exception, reply_to_surprise)


def error_reply(error: TollkeeperError) -> JSONResponse:
    """Return an error's response, {"error": {"message", "type", "param", "code"}}, with its status."""
    body = {"message": error.message, "type": error.kind, "param": error.param, "code": error.error_code}
    headers: dict[str, str] = {}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.retry_after_seconds is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_seconds)))
    return JSONResponse({"error": body}, status_code=error.status, headers=headers)


async def _reply_to_our_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, TollkeeperError)  # registered for no other
    if error.status >= 500:
        log.warning("request_failed", extra={"path": request.url.path, "code": error.error_code, "why": error.message})
    return error_reply(error)


async def _reply_to_invalid_input(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # registered for no other
    return error_reply(describe_invalid(error.errors()))


async def _reply_to_http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # registered for no other
    path, method = request.url.path, request.method
    if error.status_code == 404:
        return error_reply(NotFound(f"no such path: {path}; see /docs", code="unknown_path"))
    if error.status_code == 405:
        refusal = error_reply(MethodNotAllowed(f"{path} does not take {method}; see /docs"))
        refusal.headers.update(error.headers or {})  # Allow
        return refusal
    if error.status_code == 400:  # FastAPI could not read the body at all: bad encoding, a broken upload
        return error_reply(MalformedBody("the body cannot be read as JSON in UTF-8", param="body"))
    return JSONResponse(
        {"error": {"message": str(error.detail), "type": "invalid_request_error", "param": None, "code": "http_error"}},
        status_code=error.status_code,
    )


async def _reply_to_busy_database(request: Request, error: Exception) -> JSONResponse:
    # The pool's own error if no connection becomes free; errors of the database are translated by its sessions.
    log.warning("database_busy", extra={"path": request.url.path})
    return error_reply(ControlUnavailable("no connection to the control database came free in time; retry shortly"))
