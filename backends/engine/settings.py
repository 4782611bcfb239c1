"""Settings of an engine host, from TOLLKEEPER_ENGINE_* variables."""

import os
import re
import socket
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from backends.engine.base import ModelOrder
from backends.engine.residency import StayPolicy
from backends.processes.logs import LogSettings
from contracts.errors import ConfigurationError

BUILTIN_NAME: Final = "builtin"
BUILTIN_PATH: Final = Path(__file__).parent / "builtin_model"
_NAMED: Final = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._:-]{0,127})=(?P<source>.+)")


class EngineHostSettings(LogSettings):
    """Settings of one engine host. Sizes are bytes, times seconds; `None` and empty: the host chooses."""

    model_config = SettingsConfigDict(env_prefix="TOLLKEEPER_", extra="ignore", frozen=True)

    data: Path = Path(".tollkeeper")
    # A directory or hub name, or several with commas between them, each as `name=directory` where its name is not
    # to be the directory's. Empty: the built-in model. "none": no model until one is loaded by a call.
    engine_model: str = ""
    engine_kind: Literal["torch", "vllm"] = "torch"  # vllm: in the environment of constraints/vllm.txt (make vllm)
    engine_vllm_arguments: str = ""  # words of `vllm serve`, as in a shell: --tensor-parallel-size 2 --quantization fp8
    engine_name: str = Field(default="default", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    engine_socket: Path | None = None
    engine_listen: str = ""  # where gateways of other machines connect besides, such as tcp://10.0.0.5:9400
    engine_tls_certificate: Path | None = None  # for that: PEM files, all three or none
    engine_tls_key: Path | None = None
    engine_tls_client_ca: Path | None = None
    engine_adapters: str = ""  # `name=directory`, with commas between them: LoRA adapters of the first model
    engine_embedder: bool = True

    engine_device: str = ""  # "cpu", "cuda", "cuda:1"; empty: a GPU where there is one
    engine_dtype: Literal["", "float32", "bfloat16"] = ""
    engine_kv_bytes: int | None = Field(default=None, ge=1)
    engine_context_tokens: int | None = Field(default=None, ge=2)
    engine_max_batch_tokens: int = Field(default=512, ge=1)
    engine_max_sequences: int = Field(default=64, ge=1)
    engine_threads: int | None = Field(default=None, ge=1)
    engine_prefix_cache: bool = True
    engine_metering: bool = True
    engine_tool_parser: Literal["auto", "hermes", "llama3_json", "none"] = "auto"  # auto: by the chat template
    engine_reasoning_tags: str = "auto"  # by the chat template, or "none", or two tags with a space between them

    engine_max_requests: int = Field(default=4096, ge=1)  # of all gateways together; more are refused
    engine_outbox_bytes: int = Field(default=64 << 20, ge=1 << 16)  # of step records no gateway has acknowledged
    engine_send_buffer_bytes: int = Field(default=8 << 20, ge=1 << 16)  # a gateway this far behind loses its requests
    engine_stuck_seconds: float = Field(default=60.0, gt=0)  # a step that takes longer makes the model unhealthy
    engine_drain_seconds: float = Field(default=10.0, ge=0)

    engine_sleep_after_seconds: float | None = Field(default=None, gt=0)  # idle models that can sleep; not set: never
    engine_unload_after_seconds: float | None = Field(default=None, gt=0)  # idle ones; the next request loads them
    engine_warm: str = ""  # names with commas between them: models that are never put to sleep or unloaded
    engine_sleep_level: int = Field(
        default=1, ge=1, le=2
    )  # 1: weights to host memory; 2: dropped, and read again to wake
    engine_slow_ratio: float = Field(default=3.0, ge=0)  # this many times slower than at first: unhealthy; 0: never
    gpu_telemetry: bool = True
    gpu_dcgm_url: str = ""  # of dcgm-exporter's metrics, for activity that the driver itself does not tell

    @property
    def stay_policy(self) -> StayPolicy:
        """Return how long idle models stay. Raises ConfigurationError if they would be unloaded before they sleep."""
        return StayPolicy(
            self.engine_sleep_after_seconds,
            self.engine_unload_after_seconds,
            frozenset(filter(None, (name.strip() for name in self.engine_warm.split(",")))),
        )

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            _ = self.stay_policy
        except ConfigurationError as error:
            raise ValueError(error.message) from error
        if self.engine_max_batch_tokens < self.engine_max_sequences:
            raise ValueError(
                f"TOLLKEEPER_ENGINE_MAX_BATCH_TOKENS {self.engine_max_batch_tokens} is below "
                f"TOLLKEEPER_ENGINE_MAX_SEQUENCES {self.engine_max_sequences}: a step must hold one token of each"
            )
        files = (self.engine_tls_certificate, self.engine_tls_key, self.engine_tls_client_ca)
        if any(files) and not all(files):
            raise ValueError(
                "TOLLKEEPER_ENGINE_TLS_CERTIFICATE, TOLLKEEPER_ENGINE_TLS_KEY and TOLLKEEPER_ENGINE_TLS_CLIENT_CA go "
                "together: set all three or none"
            )
        names = [order.name for order in self.models]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"TOLLKEEPER_ENGINE_MODEL names {twice!r} twice; give each its own name: name=directory")
        return self

    @property
    def socket(self) -> Path:
        """Return the path of the socket that gateways connect to."""
        return (self.engine_socket or self.data / "run" / f"engine-{self.engine_name}.sock").absolute()

    @property
    def replica(self) -> str:
        """Return this host's name among the replicas of a model."""
        return f"{self.engine_name}@{socket.gethostname()}"

    @property
    def has_embedder(self) -> bool:
        """Return whether the built-in embedder is loaded; a vLLM host has it only if that is stated."""
        return self.engine_embedder and (self.engine_kind == "torch" or "engine_embedder" in self.model_fields_set)

    @property
    def threads(self) -> int:
        """Return how many threads one computation may use: half the cores, as torch's threads wait for each other."""
        return self.engine_threads or max(1, (os.cpu_count() or 1) // 2)

    @property
    def models(self) -> list[ModelOrder]:
        """Return the models to load at start. Raises ValueError on an adapter without a name."""
        if self.engine_model.strip() == "none":
            return []
        found: list[ModelOrder] = []
        adapters = self._adapters()
        for part in (self.engine_model or f"{BUILTIN_NAME}={BUILTIN_PATH}").split(","):
            named = _NAMED.fullmatch(part.strip())
            source = named["source"].strip() if named else part.strip()
            if not source:
                raise ValueError(f"TOLLKEEPER_ENGINE_MODEL {self.engine_model!r} has an empty entry")
            name = named["name"] if named else Path(source).name
            found.append(ModelOrder(name, source, adapters=adapters if not found else ()))
        return found

    def _adapters(self) -> tuple[tuple[str, Path], ...]:
        found = []
        for part in filter(None, (part.strip() for part in self.engine_adapters.split(","))):
            named = _NAMED.fullmatch(part)
            if named is None:
                raise ValueError(f"TOLLKEEPER_ENGINE_ADAPTERS: {part!r} is not name=directory")
            found.append((named["name"], Path(named["source"].strip())))
        return tuple(found)
