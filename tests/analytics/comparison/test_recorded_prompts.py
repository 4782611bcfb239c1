"""Prompts that a tenant's kept content has, for a gate to ask again."""

import json
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import uuid4

import pytest

from backends.store.client import StoreClient
from backends.store.columns import arrow_batch
from contracts.errors import ConfigurationError
from contracts.recording.names import CONTENT
from contracts.recording.records import ContentRecord
from tollkeeper.gate.prompts import recorded_prompts

NOW = datetime.now(UTC)


def test_the_latest_prompts_of_a_tenant_and_a_model_are_asked_again(store: Any, reader: StoreClient) -> None:
    tenant = f"tenant-{uuid4().hex[:8]}"

    def kept(words: str, minutes_ago: int, **more: str) -> ContentRecord:
        said = json.dumps({"messages": [{"role": "user", "content": words}]})
        return ContentRecord(
            request_id=uuid4().bytes,
            started_at_ns=int((NOW - timedelta(minutes=minutes_ago)).timestamp()) * 10**9,
            **{"tenant": tenant, "model": "old", "encoding": "redacted", "prompt": said, **more},
        )

    records = [
        kept("one", 3),
        kept("two", 2),
        kept("other model", 1, model="new"),
        kept("other tenant", 1, tenant="globex"),
        kept("no chat", 1, prompt="{}"),
        kept("long ago", 200),
    ]
    writer: StoreClient = store.client("writer")
    token = sha256(tenant.encode()).hexdigest()
    writer.insert_arrow("content", arrow_batch(CONTENT, records), deduplication_token=token)
    writer.close()
    found = recorded_prompts(reader, tenant, "old", NOW, hours=1, limit=10)
    assert [(one.number, one.messages[0]["content"]) for one in found] == [(0, "two"), (1, "one")]
    with pytest.raises(ConfigurationError, match="has no content kept of 'gone' in the last 1 hours"):
        recorded_prompts(reader, tenant, "gone", NOW, hours=1, limit=10)
