"""What the dashboard process needs to know, read from TOLLKEEPER_* variables."""

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from backends.secret_files import SecretFiles
from backends.store.address import StoreAddress


class DashboardSettings(BaseSettings):
    """Settings of `python -m dashboard`. The store is read as the user `reader`, who cannot write."""

    model_config = SettingsConfigDict(env_prefix="TOLLKEEPER_", extra="ignore", frozen=True)

    data: Path = Path(".tollkeeper")
    host: str = "127.0.0.1"
    dashboard_port: int = Field(default=8501, ge=1, le=65535)
    gateway_port: int = Field(default=8080, ge=1, le=65535)
    gateway_url: str = ""  # what applications use; shown in the first-steps example
    store_url: str = "http://127.0.0.1:8123"
    store_database: str = "tollkeeper"
    store_user: str | None = None
    store_password: SecretStr | None = None

    def public_gateway_url(self) -> str:
        """Give the URL an application would use, for the first-steps example."""
        return self.gateway_url.rstrip("/") or f"http://127.0.0.1:{self.gateway_port}"

    def store_address(self) -> StoreAddress:
        """Give the store's address with the reader's credentials: the settings' own, else the secrets file's.

        Raises ConfigurationError on an unusable URL or an unwritable data directory.
        """
        password = None if self.store_password is None else self.store_password.get_secret_value()
        return StoreAddress.resolve(
            self.store_url,
            self.store_database,
            "reader",
            SecretFiles(self.data / "secrets"),
            user=self.store_user,
            password=password,
        )
