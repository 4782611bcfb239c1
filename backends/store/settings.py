"""Settings of the store process: files, listener, memory."""

from pathlib import Path
from typing import Final

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from backends.processes.logs import LogSettings
from backends.secrets.secret_files import SecretFiles

_MIB: Final = 1024 * 1024


class StoreSettings(LogSettings):
    """The embedded store's settings, from TOLLKEEPER_* variables."""

    model_config = SettingsConfigDict(env_prefix="TOLLKEEPER_", frozen=True, extra="ignore")

    data: Path = Path(".tollkeeper")
    host: str = "127.0.0.1"
    store_http_port: int = Field(default=8123, ge=1, le=65535)
    store_native_port: int = Field(default=9000, ge=1, le=65535)
    store_database: str = Field(default="tollkeeper", pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")
    store_memory_bytes: int = Field(default=4096 * _MIB, ge=512 * _MIB)  # above it, queries are refused
    store_query_log_days: int = Field(default=3, ge=1, le=90)

    @property
    def directory(self) -> Path:
        """Return the store's directory, with `data` (the engine's files) and `config` (written at each start)."""
        return self.data.absolute() / "store"

    @property
    def secrets(self) -> SecretFiles:
        """Return the installation's secret files, which include the passwords of the store's users."""
        return SecretFiles(self.data.absolute() / "secrets")
