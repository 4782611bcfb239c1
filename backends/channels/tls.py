"""The certificate authorities that every client of other people's servers trusts, read once in a process."""

import ssl
from functools import cache

import httpx


@cache
def trusted_authorities() -> ssl.SSLContext:
    """Return the context for `verify`: httpx's own authorities, no files named by the environment.

    Reading them takes 30 ms, and each `httpx.AsyncClient` would do it again.
    """
    return httpx.create_ssl_context(trust_env=False)
