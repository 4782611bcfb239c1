"""Finds the token endpoint for an MCP server: configured, or by the metadata of RFC 9728 and RFC 8414."""

from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from backends.mcp.oauth_http import OAuthHttp, is_same_origin
from contracts.errors import TargetMisconfigured
from contracts.mcp.oauth import OAuthSpec

_RESOURCE: Final = "oauth-protected-resource"
_SERVER: Final = "oauth-authorization-server"
_OPENID: Final = "openid-configuration"
_MAX_SHOWN: Final = 200

ClientMethod = Literal["client_secret_basic", "client_secret_post"]


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """A token endpoint, its client authentication method, and the resource that tokens are for."""

    url: str
    method: ClientMethod
    resource: str


class NoMetadata(Exception):
    """The server has no metadata at the well-known URLs. The response to an unauthenticated request may
    name their URL.
    """


async def find_token_endpoint(server_url: str, oauth: OAuthSpec, http: OAuthHttp, hint: str = "") -> TokenEndpoint:
    """Return the token endpoint of a server's authorization server.

    `hint` is the metadata's URL from the server's refusal, if any. Raises NoMetadata or UpstreamError.
    """
    resource = oauth.resource or server_url
    if oauth.token_url:
        return TokenEndpoint(oauth.token_url, "client_secret_basic", resource)
    if oauth.issuer:
        return await _of_issuer(oauth.issuer, resource, http)
    document = await _resource_metadata(server_url, http, hint)
    named = document.get("resource")
    if not isinstance(named, str) or not _covers(named, server_url):
        raise TargetMisconfigured(
            f"the server's metadata are about the resource {str(named)[:_MAX_SHOWN]!r}, not about its url; set issuer"
        )
    issuers = document.get("authorization_servers")
    if not isinstance(issuers, list) or not issuers or not isinstance(issuers[0], str):
        raise TargetMisconfigured("the server's metadata name no authorization server; set issuer")
    return await _of_issuer(issuers[0], oauth.resource or named, http)


async def _resource_metadata(server_url: str, http: OAuthHttp, hint: str) -> dict[str, Any]:
    parts = urlsplit(server_url)
    root = f"{parts.scheme}://{parts.netloc}/.well-known/{_RESOURCE}"
    path = parts.path.rstrip("/")
    for url in [hint] if hint else [root + path, root] if path else [root]:
        status, document = await http.get(url)
        if status == 200 and document:
            return document
    if hint:
        raise TargetMisconfigured(f"the server's metadata at {hint[:_MAX_SHOWN]!r} cannot be read; set issuer")
    raise NoMetadata


async def _of_issuer(issuer: str, resource: str, http: OAuthHttp) -> TokenEndpoint:
    for url in _metadata_urls(issuer):
        status, document = await http.get(url)
        if status != 200 or not document:
            continue
        named = document.get("issuer")
        if not isinstance(named, str) or named.rstrip("/") != issuer.rstrip("/"):
            raise TargetMisconfigured(
                f"the authorization server {issuer[:_MAX_SHOWN]!r} names itself {str(named)[:_MAX_SHOWN]!r}"
            )
        endpoint = document.get("token_endpoint")
        if not isinstance(endpoint, str) or not endpoint:
            raise TargetMisconfigured(f"the authorization server {issuer[:_MAX_SHOWN]!r} names no token_endpoint")
        methods = document.get("token_endpoint_auth_methods_supported")
        is_post = isinstance(methods, list) and "client_secret_basic" not in methods and "client_secret_post" in methods
        return TokenEndpoint(endpoint, "client_secret_post" if is_post else "client_secret_basic", resource)
    raise TargetMisconfigured(
        f"the authorization server {issuer[:_MAX_SHOWN]!r} publishes no metadata (RFC 8414); set token_url"
    )


def _metadata_urls(issuer: str) -> list[str]:
    try:
        parts = urlsplit(issuer)
    except ValueError:
        raise TargetMisconfigured(f"the authorization server {issuer[:_MAX_SHOWN]!r} is not a URL") from None
    root, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    urls = [f"{root}/.well-known/{_SERVER}{path}", f"{root}/.well-known/{_OPENID}{path}"]
    return [*urls, f"{root}{path}/.well-known/{_OPENID}"] if path else urls


def _covers(resource: str, server_url: str) -> bool:
    """Return whether a resource is the server's URL, or a path above it at the same origin."""
    if not is_same_origin(resource, server_url):
        return False
    above, own = urlsplit(resource).path.rstrip("/"), urlsplit(server_url).path.rstrip("/")
    return own == above or own.startswith(f"{above}/")
