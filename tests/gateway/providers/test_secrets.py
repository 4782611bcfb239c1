"""Where keys and prompts are not: in the gateway's process, in its log, in the host's log."""

import asyncio
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.gateway.model_server import Upstream
from tests.gateway.providers import anthropic_words as anthropic
from tests.gateway.providers.host_process import KEY, ProviderHostProcess, litellm_target

pytestmark = pytest.mark.service

PROMPT = "the very private prompt 4711"


def memory_of(pid: int) -> bytes:
    """Everything that a process may write to and has in memory."""
    found = []
    with Path(f"/proc/{pid}/mem").open("rb", 0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            start, end, rights = re.match(r"(\w+)-(\w+) (\S+)", line).groups()  # type: ignore[union-attr]  # the kernel's form
            if rights.startswith("rw") and "[v" not in line:
                memory.seek(int(start, 16))
                try:
                    found.append(memory.read(int(end, 16) - int(start, 16)))
                except OSError:
                    continue  # a page that cannot be read holds nothing
    return b"".join(found)


async def test_the_key_is_never_in_the_gateway_and_no_log_has_it_or_a_prompt(
    provider_host: ProviderHostProcess, upstream: Upstream, kit: Any, tmp_path: Path, free_ports: Any
) -> None:
    (port,) = free_ports(1)
    target = litellm_target("anthropic/claude-sonnet-4-5", f"http://127.0.0.1:{upstream.port}")
    (tmp_path / "gateway.yaml").write_text(yaml.safe_dump(kit.configuration(("hosted", [target]))))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOLLKEEPER_")} | {
        "TOLLKEEPER_DATA": str(tmp_path / "data"),
        "TOLLKEEPER_GATEWAY_CONFIG": str(tmp_path / "gateway.yaml"),
        "TOLLKEEPER_GATEWAY_PORT": str(port),
        "TOLLKEEPER_PROVIDERS_URL": provider_host.url,
    }
    log = tmp_path / "gateway.log"
    with log.open("wb") as output:
        gateway = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway", env=environment, stderr=output, stdout=output
        )
    try:
        whole = kit.request(model="hosted", messages=[{"role": "user", "content": PROMPT}])
        statuses = []
        for answer in (anthropic.message(), anthropic.error(400, "invalid_request_error", PROMPT), Upstream.CLOSE):
            upstream.always(answer)
            statuses.append(await _ask(port, whole))
        memory = memory_of(gateway.pid)
    finally:
        gateway.send_signal(signal.SIGTERM)
        await gateway.wait()
    assert statuses == [200, 400, 502]
    assert upstream.requests[0].headers["x-api-key"] == KEY
    assert target["key"].encode() in memory, "the gateway knows where the key lies"
    assert KEY.encode() not in memory
    for text in (log.read_text(), provider_host.log.read_text()):
        assert "listens" in text or "ready" in text, "the log is empty"
        assert KEY not in text
        assert PROMPT not in text


async def _ask(port: int, request: bytes) -> int:
    """Send a request as soon as the gateway and its host are there; return the status."""
    for _ in range(400):
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
            continue
        writer.write(request)
        status = int((await reader.readline()).split()[1])
        writer.close()
        if status != 503:
            return status
        await asyncio.sleep(0.05)
    raise AssertionError("the gateway does not come up")


async def test_what_lies_around_in_the_environment_is_not_used(start_provider_gateway: Any, upstream: Upstream) -> None:
    """The host's process was started with ANTHROPIC_API_KEY, which LiteLLM would read by itself."""
    upstream.always(anthropic.message())
    target = litellm_target("anthropic/claude-sonnet-4-5", f"http://127.0.0.1:{upstream.port}")
    gateway = await start_provider_gateway({**target, "key": ""})
    reply = await gateway.chat(model="hosted", messages=[{"role": "user", "content": "Hello"}])
    assert reply.error["code"] == "upstream_credentials_refused"
    assert upstream.requests == []
