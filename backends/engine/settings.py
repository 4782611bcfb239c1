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
    """Settings of one engine host. Sizes are bytes, times seconds; `None` and empty: chosen by the host."""

    model_config = SettingsConfigDict(env_prefix="TOLLKEEPER_", extra="ignore", frozen=True)

    data: Path = Path(".tollkeeper")
    # A directory or hub name, or several, comma-separated; `name=directory` to give a model another name than the
    # directory's. Empty: the built-in model. "none": no model until one is loaded by a call.
    engine_model: str = ""
    engine_kind: Literal["torch", "vllm"] = "torch"  # vllm: in the environment of constraints/vllm.txt (make vllm)
    engine_vllm_arguments: str = ""  # as for `vllm serve`: --tensor-parallel-size 2 --quantization fp8
    engine_name: str = Field(default="default", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    engine_socket: Path | None = None
    engine_listen: str = ""  # address for gateways on other machines, such as tcp://10.0.0.5:9400
    engine_tls_certificate: Path | None = None  # for that address: PEM files, all three or none
    engine_tls_key: Path | None = None
    engine_tls_client_ca: Path | None = None
    engine_adapters: str = ""  # `name=directory`, comma-separated: LoRA adapters of the first model
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
    engine_reasoning_tags: str = "auto"  # auto: by the chat template; "none"; or two tags separated by a space

    engine_max_requests: int = Field(default=4096, ge=1)  # of all gateways together; more are refused
    engine_outbox_bytes: int = Field(default=64 << 20, ge=1 << 16)  # of unacknowledged step records
    engine_send_buffer_bytes: int = Field(default=8 << 20, ge=1 << 16)  # a gateway this far behind loses its requests
    engine_stuck_seconds: float = Field(default=60.0, gt=0)  # a step that takes longer makes the model unhealthy
    engine_drain_seconds: float = Field(default=10.0, ge=0)

    engine_sleep_after_seconds: float | None = Field(default=None, gt=0)  # for idle models that can sleep; unset: never
    engine_unload_after_seconds: float | None = Field(default=None, gt=0)  # idle models; the next request loads them
    engine_warm: str = ""  # comma-separated names of models that are never put to sleep or unloaded
    engine_sleep_level: int = Field(
        default=1, ge=1, le=2
    )  # 1: weights move to host memory; 2: they are dropped, and read again at waking
    engine_slow_ratio: float = Field(default=3.0, ge=0)  # this many times slower than at first: unhealthy; 0: never
    gpu_telemetry: bool = True
    gpu_dcgm_url: str = ""  # of dcgm-exporter's metrics, for activity that the driver does not report

    @property
    def stay_policy(self) -> StayPolicy:
        """Return after which idle times models sleep and are unloaded. Raises ConfigurationError if unloading would
        come first.
        """
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
        """Return whether the built-in embedder is loaded; a vLLM host loads it only if the setting is given."""
        return self.engine_embedder and (self.engine_kind == "torch" or "engine_embedder" in self.model_fields_set)

    @property
    def threads(self) -> int:
        """Return how many threads a computation may use; by default half the cores."""
        return self.engine_threads or max(1, (os.cpu_count() or 1) // 2)

    @property
    def models(self) -> list[ModelOrder]:
        """Return the orders for models to load at start. Raises ValueError on an adapter without a name."""
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
