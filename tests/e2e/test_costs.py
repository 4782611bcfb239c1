"""The bill against what clients wrote down: several tenants through a real gateway, to the pico-dollar."""

import contextlib
import json
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import httpx
import openai
import pytest

from tests.e2e.installation import UNKNOWN_KEY, Installation, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

PATIENCE_SECONDS = 120.0
MODEL = "scripted-1"
# USD per million tokens are pico-USD per token with six zeros less: the arithmetic here is the test's own.
Rates = dict[str, str]
BEFORE: Rates = {"input_text": "2.5", "cache_read_text": "0.25", "output_text": "10"}
AFTER: Rates = {"input_text": "3", "cache_read_text": "0.3", "output_text": "12.000001"}
OTHER: Rates = {"input_text": "0.7", "cache_read_text": "0", "output_text": "0.000001"}
GENERAL: Rates = {"input_text": "0.15", "output_text": "0.60"}  # what every installation begins with


@dataclass
class Books:
    """What a tenant's clients wrote down."""

    tenant: str
    key: str = ""
    requests: int = 0
    tokens: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    pico_usd: int = 0

    def add(self, rates: Rates, fresh: int, cached: int, made: int) -> None:
        self.requests += 1
        for leaf, count in (("input_text", fresh), ("cache_read_text", cached), ("output_text", made)):
            self.tokens[leaf] += count
            if count:
                whole, _, decimals = rates[leaf].partition(".")
                self.pico_usd += count * (int(whole) * 10**6 + int(decimals.ljust(6, "0") or "0"))


def tenant_with(installation: Installation, name: str, *cards: dict[str, Any]) -> Books:
    """Create a tenant, its own cards, and then its key: a gateway that knows the key knows the cards."""
    books = Books(f"{name}-{time.time_ns()}")
    installation.request("POST", "/v1/tenants", {"id": books.tenant, "name": name})
    for number, card in enumerate(cards):
        version = f"{books.tenant}/{number}"
        installation.request("POST", "/v1/prices", {"model": MODEL, "version": version, "tenant": books.tenant, **card})
    key: Any = installation.request("POST", f"/v1/tenants/{books.tenant}/keys", {"name": "app"})
    books.key = key["secret"]

    def is_served() -> bool:
        with client_of(installation, books) as client:
            try:
                client.models.list()
            except UNKNOWN_KEY:
                return False
            return True

    wait_until(is_served, PATIENCE_SECONDS, "the gateway knows the key")
    return books


def client_of(installation: Installation, books: Books) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{installation.gateway_url}/v1", api_key=books.key, max_retries=0, timeout=20)


def ask(client: openai.OpenAI, books: Books, rates: Rates, text: str, *, leaves_after: int | None = None) -> None:
    """Stream a chat and write down what came: reported usage, or where the stream is cut what was seen of it."""
    words, seen, usage = len(text.split()), 0, None
    message: Any = [{"role": "user", "content": text}]
    with contextlib.suppress(openai.APIError, httpx.HTTPError):
        stream = client.chat.completions.create(
            model=MODEL, messages=message, stream=True, stream_options={"include_usage": True}
        )
        for chunk in stream:
            usage = chunk.usage or usage
            seen += sum(bool(choice.delta.content) for choice in chunk.choices)
            if seen == leaves_after:
                stream.close()
                break
    if usage is None:
        books.add(rates, words, 0, seen)
        return
    details = usage.prompt_tokens_details
    cached = (details.cached_tokens or 0) if details else 0
    assert (usage.prompt_tokens, usage.completion_tokens) == (words, seen)
    books.add(rates, usage.prompt_tokens - cached, cached, usage.completion_tokens)


def some_traffic(installation: Installation, books: Books, rates: Rates) -> None:
    """Plain answers, one from a prompt cache, one that the model breaks off, and one whose client leaves."""
    with client_of(installation, books) as client:
        ask(client, books, rates, "tell me something [[script tokens=17]]")
        if "cache_read_text" in rates:
            ask(client, books, rates, "once more with a long prompt that is known [[script tokens=5 cached=6]]")
        ask(client, books, rates, "break off [[script tokens=30 fault=break after=7]]")
        ask(client, books, rates, "say and wait [[script tokens=30 fault=stall after=4]]", leaves_after=4)


def reported(installation: Installation, books: Books) -> Any:
    """Ask the command line as an operator would; `None` until every request is there."""
    since = (datetime.now(UTC) - timedelta(hours=1)).isoformat(timespec="minutes")
    command = [
        *(sys.executable, "-m", "tollkeeper", "cost", "report", "--by", "tenant,model", "--json", "--from", since),
        *("--tenant", books.tenant, "--data", str(installation.data), "--store-url", installation.store_url),
    ]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)
    return said if said["total"]["requests"] >= books.requests else None


def test_the_report_is_what_clients_counted(installation: Installation) -> None:
    changes_at = datetime.now(UTC) + timedelta(seconds=12)
    moment = changes_at.isoformat()
    acme = tenant_with(
        installation,
        "acme",
        {"usd_per_mtok": BEFORE, "valid_to": moment},
        {"usd_per_mtok": AFTER, "valid_from": moment},
    )
    globex = tenant_with(installation, "globex", {"usd_per_mtok": OTHER})
    initech = tenant_with(installation, "initech")

    some_traffic(installation, acme, BEFORE)
    assert datetime.now(UTC) < changes_at, "the machine is too slow for this test to say anything"
    some_traffic(installation, globex, OTHER)
    some_traffic(installation, initech, GENERAL)
    wait_until(lambda: datetime.now(UTC) > changes_at + timedelta(seconds=1), PATIENCE_SECONDS, "the price changes")
    some_traffic(installation, acme, AFTER)

    for books in (acme, globex, initech):
        said = wait_until(partial(reported, installation, books), PATIENCE_SECONDS, "the records are stored")
        total = said["total"]
        assert total["requests"] == books.requests
        assert total["input_tokens"] == books.tokens["input_text"] + books.tokens["cache_read_text"]
        assert total["cached_input_tokens"] == books.tokens["cache_read_text"]
        assert total["output_tokens"] == books.tokens["output_text"]
        assert (total["cost_pico_usd"], total["unpriced_requests"]) == (books.pico_usd, 0)
        (of_model,) = said["levels"][-1]["lines"]
        assert (of_model["tenant"], of_model["model"], of_model["cost_pico_usd"]) == (
            books.tenant,
            MODEL,
            books.pico_usd,
        )
