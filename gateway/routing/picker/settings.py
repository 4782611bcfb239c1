"""Settings of the endpoint picker, from TOLLKEEPER_* variables."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from backends.endpoints.kubernetes_watch import KubernetesApi
from backends.processes.logs import LogSettings


class PickerSettings(LogSettings):
    """Settings of the endpoint picker's process. Ports are TCP ports, sizes bytes, times seconds."""

    model_config = SettingsConfigDict(env_prefix="TOLLKEEPER_", extra="ignore", frozen=True)

    gateway_config: Path | None = None  # models, pools and targets: the file of a gateway without a control plane
    data: Path = Path(".tollkeeper")
    host: str = "127.0.0.1"
    picker_port: int = Field(default=9002, ge=0, le=65535)
    max_body_bytes: int = Field(default=32 * 1024 * 1024, ge=1024)
    drain_seconds: float = Field(default=10.0, ge=0)
    kubernetes_url: str = ""
    kubernetes_token_file: Path | None = None
    kubernetes_ca: Path | None = None

    @property
    def kubernetes_api(self) -> KubernetesApi:
        """Return the Kubernetes API that endpoints are watched at."""
        return KubernetesApi(self.kubernetes_url, self.kubernetes_token_file, self.kubernetes_ca)
