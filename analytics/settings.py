"""Settings of the analytics process, from TOLLKEEPER_* variables."""

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr

from analytics.alerts.links import Links
from analytics.prices.watched import PriceSchedule
from backends.channels.base import PAGERDUTY_URL, ChannelSettings, MailServer
from backends.channels.inward import NetworksText, read_networks
from backends.secrets.secret_files import SecretFiles
from backends.store.address import StoreAddress
from backends.web.listener_settings import ListenerSettings
from contracts.serving.configuration import control_database_url


class AnalyticsSettings(ListenerSettings):
    """Settings of `python -m analytics`."""

    data: Path = Path(".tollkeeper")
    analytics_port: int = Field(default=8082, ge=1, le=65535)
    database_url: str = ""  # empty: SQLite in the data directory
    store_url: str = "http://127.0.0.1:8123"
    store_database: str = "tollkeeper"
    store_user: str | None = None  # neither this nor the password: user "writer", secret file `store_writer`
    store_password: SecretStr | None = None
    analytics_max_body_bytes: int = Field(default=65_536, ge=1024)

    alerts_evaluate_seconds: float = Field(default=15, gt=0, le=3600)
    alerts_timeout_seconds: float = Field(default=5, gt=0, le=10)  # of one attempt at a channel
    alerts_inward: NetworksText = ""  # private networks that notifications may go to
    alerts_pagerduty_url: str = PAGERDUTY_URL
    alerts_smtp_host: str = ""  # empty: no mail
    alerts_smtp_port: int = Field(default=587, ge=1, le=65535)
    alerts_smtp_user: str = ""
    alerts_smtp_password: SecretStr | None = None
    alerts_smtp_from: str = Field(default="tollkeeper@localhost", pattern=r"^[^\s<>@]+@[^\s<>@]+$")
    alerts_smtp_tls: bool = True
    alerts_runbooks_url: str = ""  # where runbooks are; empty: docs/runbooks
    dashboard_url: str = ""  # for browsers; empty: this machine
    dashboard_port: int = Field(default=8501, ge=1, le=65535)

    export_directory: Path | None = None  # none: no scheduled exports
    export_format: Literal["csv", "parquet"] = "csv"
    export_time_zone: str = "UTC"
    export_issuer: str = "Tollkeeper"
    export_after_minutes: int = Field(default=60, ge=0, le=1440)  # after a day's end, for records that arrive late

    prices_schedule: Literal["off", "replace"] = "off"
    prices_litellm: Path | None = None  # LiteLLM's price table, for models that the price list lacks
    prices_signature: Path | None = None  # signature file of that table
    prices_public_key: Path | None = None  # key of the signature

    judge_url: str = ""  # empty: no judge
    judge_name: str = "judge"
    judge_share: float = Field(default=0.05, ge=0, le=1)  # of the requests whose content is stored
    judge_timeout_seconds: float = Field(default=30, gt=0, le=300)

    @property
    def database_address(self) -> str:
        """Return the control database's URL; SQLite in the data directory if none is set."""
        return control_database_url(self.database_url, self.data)

    def store_address(self) -> StoreAddress:
        """Return the store's address with the writer's credentials, which feedback needs.

        Raises ConfigurationError on an unusable URL or an unwritable data directory.
        """
        password = None if self.store_password is None else self.store_password.get_secret_value()
        return StoreAddress.resolve(
            self.store_url,
            self.store_database,
            "writer",
            SecretFiles(self.data / "secrets"),
            user=self.store_user,
            password=password,
        )

    def price_schedule(self) -> PriceSchedule:
        """Return the additional price table, and whether changed cards are replaced automatically."""
        return PriceSchedule(
            self.prices_litellm, self.prices_signature, self.prices_public_key, self.prices_schedule == "replace"
        )

    def links(self) -> Links:
        """Return the base URLs of links in notifications."""
        return Links(self.dashboard_url or f"http://127.0.0.1:{self.dashboard_port}", self.alerts_runbooks_url)

    def channel_settings(self, webhook_secret: bytes) -> ChannelSettings:
        """Return the settings of notification channels."""
        password = self.alerts_smtp_password
        mail = MailServer(
            self.alerts_smtp_host,
            self.alerts_smtp_port,
            self.alerts_smtp_user,
            "" if password is None else password.get_secret_value(),
            self.alerts_smtp_from,
            self.alerts_smtp_tls,
        )
        return ChannelSettings(
            self.alerts_timeout_seconds,
            read_networks(self.alerts_inward),
            webhook_secret,
            self.alerts_pagerduty_url,
            mail,
        )
