"""Anthropic's SDK for tests of native targets."""

from tests.gateway.apis.messages.conftest import sdk

__all__ = ["sdk"]
