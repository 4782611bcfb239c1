"""Settings of the sidecar, from TOLLKEEPER_* variables."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from backends.processes.logs import LogSettings
from backends.secrets.record_key import RecordKey, record_key


class SidecarSettings(LogSettings):
    """Settings of the sidecar's process. Sizes are bytes."""

    model_config = SettingsConfigDict(env_prefix="TOLLKEEPER_", extra="ignore", frozen=True)

    data: Path = Path(".tollkeeper")
    meter_socket: Path = Path("/run/tollkeeper/meter.sock")  # where vLLM's workers send, by the same variable of theirs
    meter_model: str = ""  # on step records
    meter_replica: str = ""  # likewise: the target's name at the gateway
    meter_ranks: int = Field(default=1, ge=1, le=1024)  # workers that step together: tensor times pipeline parallel
    meter_block_size: int = Field(default=16, ge=1, le=1024)  # tokens of a KV block
    meter_devices: str = ""  # UUIDs of the GPUs, comma-separated
    collector_url: str = "http://127.0.0.1:4318"
    record_signing_key: RecordKey = None  # none: the secret file `record_signing_key`, which the collector has too
    journal_max_bytes: int = Field(default=1 << 30, ge=1 << 20)

    @property
    def record_key(self) -> bytes:
        """Return the key that signs records for the collector."""
        return record_key(self.record_signing_key, self.data)

    @property
    def devices(self) -> tuple[str, ...]:
        """Return the GPUs' UUIDs."""
        return tuple(each.strip() for each in self.meter_devices.split(",") if each.strip())
