"""`tollkeeper demo`: what happens once everything runs: three example tenants, and a while of their traffic."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.text import Text

from backends.secret_files import SecretFiles
from contracts.errors import ConfigurationError
from tollkeeper.control_client import ControlClient
from tollkeeper.demo import DemoSummary, create_demo_keys, drive
from tollkeeper.gateway_client import first_model
from tollkeeper.installation import Installation

_KEY_KNOWN_SECONDS = 10.0
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Demonstration:
    """How long the traffic lasts, and how many requests a second it has in the mean."""

    data: Path
    console: Console
    seconds: float
    rate: float

    async def __call__(self, addresses: Mapping[str, str]) -> None:
        """Send the traffic and say what it came to. Raises ConfigurationError where the gateway does not take it."""
        keys = await asyncio.to_thread(self._create_keys, addresses["control"])
        for key in keys.values():
            await _wait_until_known(addresses["gateway"], key)
        self._say(f"Three tenants chat for {self.seconds:g} s; watch them on the dashboard.")
        self._say(describe(await drive(addresses["gateway"], keys, self.seconds, self.rate)))

    def _say(self, line: str) -> None:
        self.console.print(Text(line), soft_wrap=True)

    def _create_keys(self, control: str) -> dict[str, str]:
        token = SecretFiles(Installation(self.data).secrets).get_or_create("admin_token")
        with ControlClient(control, token) as client:
            return create_demo_keys(client, datetime.now(UTC))


def describe(summary: DemoSummary) -> str:
    """Say in a line what the traffic came to."""
    by_tenant = ", ".join(f"{tenant} {count}" for tenant, count in summary.requests.most_common())
    return (
        f"{summary.sent} requests in {summary.seconds:.0f} s ({by_tenant}): {summary.streamed} streamed, "
        f"{summary.left_early} left early, {summary.failed} failed; "
        f"{summary.input_tokens} input and {summary.output_tokens} output tokens"
    )


async def _wait_until_known(gateway: str, key: str) -> None:
    # Gateways learn of a key within a second.
    deadline = asyncio.get_running_loop().time() + _KEY_KNOWN_SECONDS
    while await first_model(gateway, key) is None:
        if asyncio.get_running_loop().time() > deadline:
            raise ConfigurationError(f"the gateway at {gateway} does not know a key made {_KEY_KNOWN_SECONDS:g} s ago")
        await asyncio.sleep(_POLL_SECONDS)
