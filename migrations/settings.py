"""What the migrations are told: which database and which store."""

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict

from backends.processes.logs import LogSettings
from backends.secrets.secret_files import SecretFiles
from backends.store.address import StoreAddress
from contracts.serving.configuration import control_database_url


class MigrationSettings(LogSettings):
    """The migrations' settings, read from TOLLKEEPER_* variables."""

    model_config = SettingsConfigDict(env_prefix="TOLLKEEPER_", frozen=True, extra="ignore")

    data: Path = Path(".tollkeeper")
    database_url: str = ""  # empty: SQLite in the data directory
    store_url: str = "http://127.0.0.1:8123"
    store_database: str = Field(default="tollkeeper", pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")
    store_user: str | None = None  # None: `writer`
    store_password: SecretStr | None = None  # None: the secrets file `store_writer`
    store_cluster: str = ""  # empty: one server
    store_wait_seconds: float = Field(default=30.0, ge=0)  # for a store that is just starting

    @property
    def database_address(self) -> str:
        """Return the control database's URL, SQLite in the data directory where none is set."""
        return control_database_url(self.database_url, self.data)

    @property
    def secrets(self) -> SecretFiles:
        """Return the installation's secrets."""
        return SecretFiles(self.data / "secrets")

    @property
    def store_address(self) -> StoreAddress:
        """Where the store is, with the credentials of a user who may change its tables."""
        return StoreAddress.resolve(
            self.store_url,
            self.store_database,
            "writer",
            self.secrets,
            user=self.store_user,
            password=None if self.store_password is None else self.store_password.get_secret_value(),
        )
