"""Settings of the dashboard process, from TOLLKEEPER_* variables."""

from decimal import Decimal
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr

from backends.network.network_addresses import listens_on_loopback
from backends.secrets.secret_files import SecretFiles
from backends.store.address import StoreAddress, StoreRole
from backends.web.listener_settings import ListenerSettings
from contracts.serving.configuration import control_database_url


class DashboardSettings(ListenerSettings):
    """Settings of `python -m dashboard`. The store is read as the user `reader`, who cannot write."""

    data: Path = Path(".tollkeeper")
    dashboard_port: int = Field(default=8501, ge=1, le=65535)
    gateway_port: int = Field(default=8080, ge=1, le=65535)
    gateway_url: str = ""  # what applications use; shown in the first-steps example
    store_url: str = "http://127.0.0.1:8123"
    store_database: str = "tollkeeper"
    store_user: str | None = None
    store_password: SecretStr | None = None
    control_url: str = ""  # empty: the control port of this machine
    control_port: int = Field(default=8081, ge=1, le=65535)
    database_url: str = ""  # empty: SQLite in the data directory; only read

    dashboard_sign_in: Literal["auto", "always"] = "auto"  # auto: local users of a loopback address need no account
    dashboard_currency: str = Field(default="USD", pattern=r"^[A-Z]{3}$")
    dashboard_usd_rate: Decimal = Field(default=Decimal(1), gt=0)  # units of that currency for one USD
    dashboard_locale: str = Field(default="", pattern=r"^([a-z]{2,3}(_[A-Z]{2})?)?$")  # empty: the browser's
    allocations: Path | None = None  # YAML file with saved allocations of shared costs
    dashboard_session_hours: int = Field(default=12, ge=1, le=720)
    dashboard_url: str = ""  # public URL, such as https://llm.example, to which the identity provider redirects
    oidc_metadata_url: str = ""  # empty: no identity provider
    oidc_client_id: str = ""
    oidc_client_secret: SecretStr | None = None
    oidc_name: str = "your organisation"

    @property
    def is_loopback(self) -> bool:
        """Return whether the dashboard listens on a loopback address, which only this machine reaches."""
        return listens_on_loopback(self.host)

    @property
    def host_names(self) -> str:
        """Return the allowed Host names besides this machine's, comma-separated, with the public URL's host."""
        return f"{self.allowed_hosts},{urlsplit(self.dashboard_url).hostname or ''}".strip(",")

    @property
    def is_for_this_machine(self) -> bool:
        """Return whether only local users are expected: no setting names a proxy, host name or public URL."""
        is_published = bool(self.dashboard_url or self.trusted_proxies or self.oidc_metadata_url)
        return self.dashboard_sign_in == "auto" and self.is_loopback and not is_published

    @property
    def control_plane_url(self) -> str:
        """Return the URL of the control plane's HTTP."""
        return self.control_url.rstrip("/") or f"http://127.0.0.1:{self.control_port}"

    @property
    def database_address(self) -> str:
        """Return the control database's URL; SQLite in the data directory if none is set."""
        return control_database_url(self.database_url, self.data)

    def public_gateway_url(self) -> str:
        """Return the URL an application would use, for the first-steps example."""
        return self.gateway_url.rstrip("/") or f"http://127.0.0.1:{self.gateway_port}"

    def store_address(self, role: StoreRole = "reader") -> StoreAddress:
        """Return the store's address with a reader's credentials: the settings' own, else the secrets file's.

        Raises ConfigurationError on an unusable URL or an unwritable data directory.
        """
        password = None if self.store_password is None else self.store_password.get_secret_value()
        return StoreAddress.resolve(
            self.store_url,
            self.store_database,
            role,
            SecretFiles(self.data / "secrets"),
            user=self.store_user,
            password=password,
        )
