"""Access tokens for one MCP server, obtained with client credentials or a refresh token and renewed before they expire.

However many calls wait, only one token request is sent. Tokens of a refresh grant are shared by all gateways through a
store, because servers that rotate refresh tokens accept each only once.
"""

import asyncio
import base64
import logging
import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar
from urllib.parse import quote_plus

from backends.mcp.oauth_http import OAuthHttp
from backends.mcp.token_endpoint import NoMetadata, TokenEndpoint, find_token_endpoint
from backends.mcp.token_store import TokenStore
from contracts.errors import (
    ConfigurationError,
    ControlUnavailable,
    TargetMisconfigured,
    TollkeeperError,
    UpstreamBroken,
    UpstreamRateLimited,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from contracts.mcp.oauth import CLIENT_SECRET, REFRESH_TOKEN, AccessGrant, seed_of
from contracts.mcp.servers import McpServerSpec

_log = logging.getLogger(__name__)

_FAILED_SECONDS: Final = 5.0  # how long a failure is returned to all calls; also between two renewals after a refusal
_ENDPOINT_SECONDS: Final = 3600.0  # how long metadata are cached
_CLAIM_SECONDS: Final = 25.0  # maximum wait for another gateway that renews the same tokens
_LOOK_SECONDS: Final = 0.2
_KEEP_AGAIN_SECONDS: Final = 5.0
_OPEN_SECONDS: Final = 60.0  # how long a server without metadata is called without a token, unless it refuses
_MOST_EARLY_SECONDS: Final = 60.0  # how long before its expiry a token is renewed; at most a tenth of its lifetime
_MAX_LIFETIME_SECONDS: Final = 10 * 366 * 86_400.0
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,8192}")
_ERROR_WORD: Final = re.compile(r"[a-z_]{1,40}")

_Found = TypeVar("_Found")


class AccessTokens:
    """The access tokens of one server, for use on one event loop."""

    def __init__(
        self, spec: McpServerSpec, resolve: Callable[[str], str], http: OAuthHttp, store: TokenStore | None
    ) -> None:
        """Read the secrets. Raises ConfigurationError if one cannot be read."""
        assert spec.oauth is not None
        self._spec, self._oauth, self._http = spec, spec.oauth, http
        self._secret = _resolved(spec, CLIENT_SECRET, resolve)
        self._first_refresh_token = _resolved(spec, REFRESH_TOKEN, resolve)
        self._seed = seed_of(self._first_refresh_token)
        self._store = store
        self._grant: AccessGrant | None = None
        self._endpoint: TokenEndpoint | None = None
        self._endpoint_until = 0.0
        self._hint = ""  # the metadata's URL, as the server's refusal named it
        self._renewing: asyncio.Task[AccessGrant] | None = None
        self._failure: TollkeeperError | None = None
        self._failed_at = self._refused_at = float("-inf")
        self._accepted = ""  # the last token that the server has accepted
        self._open_until = float("-inf")
        self._unkept: AccessGrant | None = None
        self._keeping: asyncio.Task[None] | None = None
        self.values: tuple[str, ...] = tuple(filter(None, (self._secret, self._first_refresh_token)))

    @property
    def held(self) -> str:
        """Return the last access token, expired or not; empty if there is none."""
        return "" if self._grant is None else self._grant.access_token

    @property
    def fault(self) -> str:
        """Return why there is no token; empty if there is no problem."""
        return "" if self._failure is None else self._failure.message

    async def current(self) -> str:
        """Return the access token, renewed if it expires soon. Raises UpstreamError.

        Empty if the server must be called without a token first, because its refusal names its metadata.
        """
        grant, now = self._grant, time.time()
        if grant is not None and (grant.renew_at is None or now < grant.renew_at):
            return grant.access_token
        if grant is None and time.monotonic() < self._open_until:
            return ""
        try:
            return (await self._renewed("")).access_token
        except NoMetadata:
            self._open_until = time.monotonic() + _OPEN_SECONDS
            return ""
        except TollkeeperError:
            if grant is not None and grant.expires_at is not None and now < grant.expires_at:
                return grant.access_token  # still valid; the next call tries again
            raise

    async def renew(self, refused: str, hint: str) -> None:
        """Replace a token that the server refused. `hint` is the metadata's URL from the refusal.

        Raises UpstreamError if no new token can be obtained, or one was refused within the last seconds.
        """
        if self._grant is not None and self._grant.access_token != refused:
            return  # renewed already because of another call's refusal
        is_running = self._renewing is not None and not self._renewing.done()
        if refused and not is_running:
            is_new = refused != self._accepted
            if is_new and time.monotonic() - self._refused_at < _FAILED_SECONDS:
                raise TargetMisconfigured(
                    f"the MCP server {self._spec.id!r} refuses access tokens that the authorization server has just "
                    "given"
                )
            self._refused_at = time.monotonic()
        if hint and hint != self._hint:
            self._hint, self._endpoint = hint, None
        try:
            await self._renewed(refused)
        except NoMetadata:
            raise TargetMisconfigured(
                f"the MCP server {self._spec.id!r} does not say which authorization server it trusts; set issuer"
            ) from None

    def note_accepted(self, token: str) -> None:
        """Record that the server accepted a token: if it refuses it later, the token was revoked."""
        self._accepted = token

    async def close(self) -> None:
        """Close the connections, after waiting for a renewal in progress, whose result must not be lost."""
        if self._renewing is not None:
            await asyncio.wait((self._renewing,))
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        await self._http.close()

    async def _renewed(self, refused: str) -> AccessGrant:
        """Wait for the renewal in progress, or start one."""
        if self._failure is not None and time.monotonic() - self._failed_at < _FAILED_SECONDS:
            raise self._failure.with_traceback(None)
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.get_running_loop().create_task(self._renew(refused))
            self._renewing.add_done_callback(_look_at)
        return await asyncio.shield(self._renewing)  # continues for others if this caller is cancelled

    async def _renew(self, refused: str) -> AccessGrant:
        try:
            if self._store is not None and self._first_refresh_token:
                grant = await self._shared(self._store, refused)
            else:
                grant = await self._ask({"grant_type": "client_credentials"})
        except TollkeeperError as error:
            self._failure, self._failed_at = error, time.monotonic()
            self._endpoint = None  # its metadata may have changed
            _log.warning("no access token for an MCP server", extra={"server": self._spec.id, "reason": error.message})
            raise
        self._failure, self._grant = None, grant
        own = (self._secret, self._first_refresh_token)
        self.values = tuple(filter(None, (*own, grant.access_token, grant.refresh_token, *self.values[-4:])))
        return grant

    # With a refresh token, shared by all gateways.

    async def _shared(self, store: TokenStore, refused: str) -> AccessGrant:
        server = self._spec.id
        end = time.monotonic() + _CLAIM_SECONDS
        while True:
            claim = await self._kept(store.claim, server)
            if claim is not None:
                break
            if time.monotonic() > end:
                raise UpstreamTimeout(f"another gateway has been renewing the tokens of {server!r} for too long")
            await asyncio.sleep(_LOOK_SECONDS)
        try:
            return await self._claimed(store, refused)
        finally:
            try:
                await self._kept(store.give_back, claim)
            except TollkeeperError:
                _log.info("claim not released, it will expire", extra={"server": server})

    async def _claimed(self, store: TokenStore, refused: str) -> AccessGrant:
        kept = self._unkept or await self._kept(store.read, self._spec.id)
        if kept is not None and kept.seed != self._seed:
            kept = None  # another refresh token has been configured since
        if kept is not None and kept.access_token not in ("", refused):
            is_due = kept.renew_at is not None and time.time() >= kept.renew_at
            if not is_due and (self._grant is None or kept.access_token != self._grant.access_token):
                return kept  # another gateway has renewed it
        refresh_token = self._first_refresh_token if kept is None else kept.refresh_token
        grant = await self._ask({"grant_type": "refresh_token", "refresh_token": refresh_token})
        try:
            await self._kept(store.keep, self._spec.id, grant)
            self._unkept = None
        except TollkeeperError as error:
            # The previous refresh token may be invalid now, so this one must not be lost.
            _log.error("tokens not stored, tried again", extra={"server": self._spec.id, "reason": error.message})
            self._unkept = grant
            if self._keeping is None or self._keeping.done():
                self._keeping = asyncio.get_running_loop().create_task(self._keep_later(store))
        return grant

    async def _keep_later(self, store: TokenStore) -> None:
        while True:
            await asyncio.sleep(_KEEP_AGAIN_SECONDS)
            grant = self._unkept  # a renewal may have stored another since
            if grant is None:
                return
            with suppress(TollkeeperError):
                await self._kept(store.keep, self._spec.id, grant)
                if self._unkept is grant:
                    self._unkept = None

    async def _kept(self, act: Callable[..., _Found], *arguments: Any) -> _Found:
        """Call a method of the store in a thread. Raises UpstreamError."""
        try:
            return await asyncio.to_thread(act, *arguments)
        except ControlUnavailable as error:
            raise UpstreamUnreachable("the control database, which has the tokens, does not answer") from error
        except ConfigurationError as error:
            raise TargetMisconfigured(error.message) from error

    # At the authorization server.

    async def _ask(self, form: dict[str, str]) -> AccessGrant:
        """Request a token and return it. Raises UpstreamError or NoMetadata."""
        now = time.monotonic()
        if self._endpoint is None or now > self._endpoint_until:
            self._endpoint = await find_token_endpoint(self._spec.url, self._oauth, self._http, self._hint)
            self._endpoint_until = now + _ENDPOINT_SECONDS
        endpoint = self._endpoint
        headers: dict[str, str] = {}
        form = {**form, "resource": endpoint.resource}
        if self._oauth.scope:
            form["scope"] = self._oauth.scope
        if not self._secret:
            form["client_id"] = self._oauth.client_id
        elif endpoint.method == "client_secret_post":
            form |= {"client_id": self._oauth.client_id, "client_secret": self._secret}
        else:  # RFC 6749, section 2.3.1: both are encoded as in forms first
            pair = f"{quote_plus(self._oauth.client_id)}:{quote_plus(self._secret)}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        status, answer = await self._http.post(endpoint.url, form, headers)
        if status != 200:
            raise self._refusal(status, answer)
        return self._granted(answer, form.get("refresh_token", ""))

    def _refusal(self, status: int, answer: dict[str, Any]) -> TollkeeperError:
        word = answer.get("error")
        said = word if isinstance(word, str) and _ERROR_WORD.fullmatch(word) else f"status {status}"
        about = f"the authorization server of MCP server {self._spec.id!r}"
        if said == "invalid_grant" and self._first_refresh_token:
            return TargetMisconfigured(
                f"{about} takes the refresh token no longer (invalid_grant); authorize the gateway again and store "
                "the new one"
            )
        if status == 429:
            return UpstreamRateLimited(f"{about} refuses further requests ({said})")
        if status >= 500:
            return UpstreamBroken(f"{about} failed ({said})")
        return TargetMisconfigured(f"{about} refuses the gateway ({said})")

    def _granted(self, answer: dict[str, Any], refresh_token: str) -> AccessGrant:
        token, kind, rotated = answer.get("access_token"), answer.get("token_type"), answer.get("refresh_token")
        if not isinstance(token, str) or _TOKEN.fullmatch(token) is None:
            raise UpstreamBroken(f"the authorization server of MCP server {self._spec.id!r} gave no access token")
        if not isinstance(kind, str) or kind.lower() != "bearer":
            raise UpstreamBroken(
                f"the authorization server of MCP server {self._spec.id!r} gave a token of another type than Bearer"
            )
        if refresh_token and isinstance(rotated, str) and _TOKEN.fullmatch(rotated):
            refresh_token = rotated
        seconds, now = _seconds(answer.get("expires_in")), time.time()
        if seconds is None:
            return AccessGrant(token, refresh_token=refresh_token, seed=self._seed)
        early = min(_MOST_EARLY_SECONDS, seconds / 10)
        return AccessGrant(token, now + seconds - early, now + seconds, refresh_token, self._seed)


def _seconds(given: object) -> float | None:
    """Return a lifetime in seconds; `None` if none is stated. Some servers send the number as a string."""
    if isinstance(given, str) and given.isdigit() and len(given) <= 12:
        given = int(given)
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= _MAX_LIFETIME_SECONDS:
        return None
    return float(given)


def _resolved(spec: McpServerSpec, name: str, resolve: Callable[[str], str]) -> str:
    reference = spec.credential(name)
    found = resolve(reference) if reference else ""
    if found and _TOKEN.fullmatch(found) is None:
        raise ConfigurationError(
            f"the {name} has a space, a line end or a non-ASCII character", about=f"MCP server {spec.id!r}"
        )
    return found


def _look_at(task: asyncio.Task[AccessGrant]) -> None:
    if not task.cancelled():
        task.exception()  # marks it as retrieved, in case no caller waits any more
