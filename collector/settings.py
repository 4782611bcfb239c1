"""The collector's settings, read from TOLLKEEPER_* variables."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from backends.segments import Fsync

Port = Annotated[int, Field(ge=0, le=65535)]  # 0: any free port
Bytes = Annotated[int, Field(gt=0)]
_MIB = 1 << 20


class CollectorSettings(BaseSettings):
    """What the collector can be told. Sizes are bytes."""

    model_config = SettingsConfigDict(env_prefix="TOLLKEEPER_", frozen=True, extra="ignore")

    data: Path = Path(".tollkeeper")
    host: str = "127.0.0.1"
    collector_port: Port = 4318
    collector_health_port: Port = 13133

    store_url: str = "http://127.0.0.1:8123"
    store_database: str = "tollkeeper"
    store_user: str | None = None  # neither this nor the password: user "writer", secret file `store_writer`
    store_password: SecretStr | None = None

    spool_max_bytes: Bytes = 4096 * _MIB
    spool_retain_bytes: Annotated[int, Field(ge=0)] = 64 * _MIB  # kept after export, to know retried batches again
    spool_fsync: Fsync = "never"  # "always" survives a power cut too
    dead_letter_max_bytes: Bytes = 64 * _MIB

    collector_max_body_bytes: Bytes = 32 * _MIB  # as sent
    collector_max_decompressed_bytes: Bytes = 64 * _MIB
    collector_max_inflight_bytes: Bytes = 128 * _MIB  # of bodies being received at one time
    collector_body_timeout_seconds: Annotated[float, Field(gt=0)] = 30.0

    @property
    def spool_directory(self) -> Path:
        """Where received batches wait for the store."""
        return self.data / "spool"
