"""The built-in engine's books, from the rows in the store: every nanosecond of its wall clock on a line, and every
token it made on a bill."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import openai
import pytest
from typer.testing import CliRunner

from algorithms.gpu_time.ledger import ledger_lines
from contracts.recording.records import StepRecord
from tests.e2e.installation import Installation, wait_until
from tollkeeper.cli import app

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

MODEL = "tollkeeper-5m"

STEPS = """
SELECT engine, sequence, toUnixTimestamp64Nano(started_at) AS started_at_ns, busy_ns, gap_ns, kind, gap_cause,
       request_ids, tenants, scheduled, context, cached, phases, recompute, aborted, gpu_ns
FROM engine_steps WHERE started_at > now() - INTERVAL 1 HOUR AND model IN ({model:String}, '') ORDER BY sequence
"""
BILLED = """
SELECT count() AS requests, sum(tokens_output_text) AS tokens, sum(engine_output_tokens) AS engine_tokens,
       sum(gpu_prefill_ns + gpu_decode_ns + gpu_recompute_ns + gpu_wasted_ns) AS gpu_ns,
       countIf(gap_clock = 'engine') AS engine_clocked
FROM requests WHERE run_id = {run_id:String} AND started_at > now() - INTERVAL 1 HOUR
"""

IDS = "SELECT request_id FROM requests WHERE run_id = {run_id:String} AND started_at > now() - INTERVAL 1 HOUR"


def _chat(installation: Installation, run_id: str, number: int) -> int:
    """Stream one chat; every fifth client leaves after a few chunks. Gives the tokens of a complete one."""
    with openai.OpenAI(
        base_url=f"{installation.gateway_url}/v1", api_key=installation.key, max_retries=0, timeout=60
    ) as client:
        stream = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": f"What is a bridge? {number}"}],
            max_tokens=30 + number,
            stream=True,
            stream_options={"include_usage": True},
            extra_headers={"x-tollkeeper-run-id": run_id},
        )
        for seen, chunk in enumerate(stream):
            if number % 5 == 4 and seen == 3:
                stream.close()
                return 0
            if chunk.usage is not None:
                return chunk.usage.completion_tokens
    return 0


def _records(rows: list[dict[str, Any]]) -> list[StepRecord]:
    return [
        StepRecord(**{**row, "request_ids": [UUID(str(identifier)).bytes for identifier in row["request_ids"]]})
        for row in rows
    ]


def test_the_ledger_of_a_live_engine_closes_and_its_tokens_are_billed(installation: Installation):
    run_id = f"ledger-{time.time_ns()}"
    began_ns = time.time_ns()
    with ThreadPoolExecutor(6) as pool:
        tokens = list(pool.map(lambda number: _chat(installation, run_id, number), range(24)))
    ended_ns = time.time_ns()
    store = installation.store()

    def billed() -> dict[str, Any]:
        (row,) = store.query(BILLED, {"run_id": run_id})
        return row if row["requests"] == 24 else {}

    row = wait_until(billed, 120, "the rows of all requests, those that left too")
    assert row["tokens"] == row["engine_tokens"] >= sum(tokens) > 0
    assert row["engine_clocked"] > 0

    def steps() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = store.query(STEPS, {"model": MODEL})
        last = found[-1] if found else None
        return found if last and last["started_at_ns"] + last["busy_ns"] >= ended_ns else []

    rows = wait_until(steps, 120, "step rows up to the end of the load")
    assert [step["sequence"] for step in rows] == list(range(rows[0]["sequence"], rows[0]["sequence"] + len(rows)))
    (lines,) = ledger_lines(_records(rows), began_ns, ended_ns).values()
    assert abs(lines.unexplained_ns) <= 0.005 * lines.wall_ns, lines
    assert lines.busy_ns > 0
    print(f"unexplained {lines.unexplained_ns / lines.wall_ns:.5%} of wall, {lines}")
    mine = {str(found["request_id"]) for found in store.query(IDS, {"run_id": run_id})}
    charged_ns = sum(
        part
        for step in rows
        for identifier, part in zip(step["request_ids"], step["gpu_ns"], strict=True)
        if str(identifier) in mine
    )
    assert row["gpu_ns"] == charged_ns, "what requests were charged is not what the steps took"
    printed = _printed_ledger(installation, began_ns, ended_ns)
    total = printed["total"]
    assert abs(total["unexplained_ns"]) <= 0.005 * total["wall_ns"], printed
    assert abs(total["unexplained_share"]) <= 0.005
    assert printed["missing_steps"] == 0
    assert all(abs(gpu["unexplained_ns"]) <= 0.005 * gpu["wall_ns"] for gpu in printed["gpus"]), printed
    (busy,) = (gpu for gpu in printed["gpus"] if gpu["attributed_ns"])  # the embedder is another engine, and idle
    assert busy["wall_ns"] > 0.999 * (ended_ns - began_ns), "the engine lived through the load"
    assert busy["attributed_ns"] == pytest.approx(lines.attributed_ns, rel=0.001), "by the minute, as over the whole"
    assert busy["host_gap_ns"] == pytest.approx(lines.host_gap_ns, rel=0.001)


def _printed_ledger(installation: Installation, began_ns: int, ended_ns: int) -> Any:
    """What `tollkeeper gpu ledger --json` prints of a stretch of time."""
    begin, end = (datetime.fromtimestamp(ns / 1e9, UTC).isoformat() for ns in (began_ns, ended_ns))
    options = ["--from", begin, "--to", end, "--data", str(installation.data), "--store-url", installation.store_url]
    result = CliRunner().invoke(app, ["gpu", "ledger", *options, "--json"])
    assert result.exit_code == 0, result.output
    print(result.stdout)
    return json.loads(result.stdout)
