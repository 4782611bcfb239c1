"""Brings the control-plane database to head with Alembic."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy.exc import DBAPIError

from backends.control.database import ControlDatabase
from backends.secrets.secret_files import SecretFiles
from contracts.control import SCHEMA_HEAD
from contracts.errors import ConfigurationError, ControlUnavailable, NewerSchema

SCRIPTS: Final = Path(__file__).parent / "control"


def alembic_config() -> Config:
    """Return Alembic's configuration, independent of the working directory and of any ini file."""
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    return config


def migrate_database(
    url: str, *, say: Callable[[str], None], revision: str = "head", secrets: SecretFiles | None = None
) -> None:
    """Upgrade the database to head, or to an earlier revision, one line per revision through `say`. Safe to repeat.

    `secrets` are the installation's, which a database with alert channels of revision 0007 needs to be sealed with.
    Raises NewerSchema if it is at a revision this code does not know, ControlUnavailable where it does not answer,
    ConfigurationError where its directory cannot be written or a migration fails.
    """
    database = ControlDatabase(url)
    try:
        _make_directory(database)
        config = alembic_config()
        before = _require_known(database)
        if before == SCHEMA_HEAD:
            say(f"control: at head ({SCHEMA_HEAD})")
            return
        config.attributes["database"] = database
        config.attributes["say"] = say
        config.attributes["secrets"] = secrets
        command.upgrade(config, revision)
    except (CommandError, DBAPIError) as error:
        raise ConfigurationError(
            f"the control database {database.shown_url} could not be migrated ({type(error).__name__}); "
            "the failed step was rolled back"
        ) from error
    finally:
        database.close()


def check_database(url: str) -> None:
    """Make sure that the database is at a revision that this code knows, and change nothing.

    Raises as `migrate_database` does. A database of SQLite that is not there is not made.
    """
    database = ControlDatabase(url)
    try:
        if database.url.get_backend_name() == "sqlite" and not Path(str(database.url.database)).exists():
            return
        _require_known(database)
    finally:
        database.close()


def _require_known(database: ControlDatabase) -> str | None:
    """Return the revision that the database is at. Raises NewerSchema if this code does not know it."""
    known = {script.revision for script in ScriptDirectory.from_config(alembic_config()).walk_revisions()}
    before = database.revision()
    if before is not None and before not in known:
        database.check_schema()
        raise NewerSchema(f"the control database {database.shown_url} is at the unknown revision {before}")
    return before


def _make_directory(database: ControlDatabase) -> None:
    if database.url.get_backend_name() != "sqlite" or database.url.database in (None, "", ":memory:"):
        return
    directory = Path(str(database.url.database)).parent
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        database.revision()  # opens the file, which is where an unwritable directory shows
    except (OSError, ControlUnavailable) as error:
        raise ConfigurationError(
            f"the control database {database.url.database} cannot be opened; "
            "choose a writable data directory with --data or TOLLKEEPER_DATA"
        ) from error
