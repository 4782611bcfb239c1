"""The certificate authorities that all clients of external servers trust, read once per process."""

import ssl
from functools import cache

import httpx


@cache
def trusted_authorities() -> ssl.SSLContext:
    """Return the context for `verify`: httpx's own authorities, without files named by the environment.

    Reading them takes 30 ms, and each `httpx.AsyncClient` would do it again.
    """
    return httpx.create_ssl_context(trust_env=False)
