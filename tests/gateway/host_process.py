"""An engine host as a process of its own, with the built-in model or with others."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from backends.engine.settings import BUILTIN_PATH
from tests.backends.engine.host_client import HostClient

MODEL, TOOLS_MODEL = "tollkeeper-5m", "tiny-tools"
# Names tools and reasoning, so that the host parses both; thinks where it is told to, or an effort is stated.
TOOLS_TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}{% endfor %}{% if tools %}{{ tools | length }} tools: "
    "<tool_call>{% endif %}{% if think or (reasoning_effort and reasoning_effort != 'none') %}<think>\n{% endif %}"
    "{# until </think> #}"
)
_BUILTIN: Final = {MODEL: BUILTIN_PATH}


class HostProcess:
    """`python -m backends.engine` with models by name and folder, and with the embedder where asked."""

    def __init__(
        self, data: Path, models: Mapping[str, Path] = _BUILTIN, *, embedder: bool, kv_mebibytes: int = 128
    ) -> None:
        data.mkdir(parents=True, exist_ok=True)
        self.socket = data / "run" / "engine-default.sock"
        self.url = f"unix://{self.socket}"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOLLKEEPER_")}
        environment |= {
            "TOLLKEEPER_DATA": str(data),
            "TOLLKEEPER_ENGINE_MODEL": ",".join(f"{name}={path}" for name, path in models.items()),
            "TOLLKEEPER_ENGINE_EMBEDDER": str(embedder).lower(),
            "TOLLKEEPER_ENGINE_KV_BYTES": str(kv_mebibytes << 20),
            "TOLLKEEPER_ENGINE_THREADS": "1",
        }
        with (data / "engine.log").open("ab") as log:
            command = [sys.executable, "-m", "backends.engine"]
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def serves(self, gateway: Any, *models: str) -> bool:
        """Return whether a gateway that knows this host alone may ask it for these models."""
        (host,) = gateway.gateway.health()["engines"].values()
        return host["state"] == "ready" and set(models) <= set(host["models"])

    @asynccontextmanager
    async def with_models(self, models: Mapping[str, Path], kv_mebibytes: int) -> AsyncIterator[None]:
        """Serve more models meanwhile."""
        client = await (await HostClient.open(self.socket)).attach("loader")
        try:
            for name, path in models.items():
                answer = await client.call("load", name, str(path), kv_bytes=kv_mebibytes << 20)
                assert answer.ok, answer.error_message
            yield
            for name in models:
                assert (await client.call("unload", name)).ok
        finally:
            await client.close()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def tiny_model(path: Path, template: str) -> Path:
    """Create a tiny model whose chat template is this one; return its folder."""
    from tests.backends.engine.torch_engine.tiny_models import build_model  # slow, and wanted by few tests: torch

    build_model("llama", path)
    file = path / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": template}))
    return path
