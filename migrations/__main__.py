"""`python -m migrations`: bring database and store to head, one line per thing done.

Both are checked before either is changed: those of a newer release are refused with nothing written. With `--check`
nothing else is done. With `--only control` or `--only store` the other is left alone; with `--cluster NAME` the store
is of several nodes. A store of another installation is refused; `--adopt-store` takes it over.
"""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import ValidationError

from backends.processes.kept_imports import kept_imports
from backends.processes.logs import start_logging
from backends.processes.process import require_known_variables
from backends.secrets.installation_id import keep_installation_id
from backends.secrets.private_files import keep_private
from backends.segment_log.pieces import Pieces
from backends.store.store_locks import StoreLocks
from contracts.errors import ConfigurationError, ControlUnavailable, TollkeeperError
from contracts.serving.configuration import control_database_url
from migrations.settings import MigrationSettings

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None, say: Callable[[str], None] = print) -> int:
    """Migrate; 0 when all is at head, 2 where it cannot be."""
    parser = argparse.ArgumentParser(prog="python -m migrations", description=__doc__)
    parser.add_argument("--only", choices=("control", "store"), help="leave the other one alone")
    parser.add_argument("--cluster", metavar="NAME", help="the store's cluster, over whose nodes tables are spread")
    parser.add_argument("--check", action="store_true", help="only check that both can be migrated; change nothing")
    parser.add_argument(
        "--adopt-store", action="store_true", help="take over a store that belongs to another installation"
    )
    given = parser.parse_args(arguments)
    only: str | None = given.only
    try:
        require_known_variables()
        settings = MigrationSettings()
        start_logging(settings)
        logging.getLogger("alembic").setLevel(logging.WARNING)  # we say ourselves what is applied
        keep_private(settings.data)
        with kept_imports():  # not before the settings are known to be good
            from migrations.database import check_database, migrate_database
            from migrations.store import check_store, migrate_store, read_migrations

        cluster: str = given.cluster or settings.store_cluster
        if only != "store":
            check_database(settings.database_address)
        if only != "control":
            check_store(
                settings.store_address,
                read_migrations(),
                wait_seconds=settings.store_wait_seconds,
                is_adopted=given.adopt_store,
            )
        if given.check:
            return 0
        if only != "store":
            pieces, file = Pieces(settings.data), control_file(settings)
            if file is not None:
                pieces.find_loss("control", file)
            migrate_database(settings.database_address, say=say, secrets=settings.secrets)
            if file is not None:
                pieces.note("control")
            _identify(settings)
        if only != "control":
            migrate_store(
                settings.store_address,
                read_migrations(),
                wait_seconds=settings.store_wait_seconds,
                say=say,
                cluster=cluster,
                turns=StoreLocks(settings.data) if settings.data.is_dir() else None,
                is_adopted=given.adopt_store,
            )
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = "_".join(str(part) for part in first["loc"]).upper()
        print(f"migrations: TOLLKEEPER_{name}: {first['msg']}", file=sys.stderr)
        return 2
    except TollkeeperError as error:
        print(f"migrations: {error.message}", file=sys.stderr)
        return 2
    return 0


def _identify(settings: MigrationSettings) -> None:
    """Write down which installation this is, if its secrets can be told and written; without it nothing is compared."""
    from backends.control.database import ControlDatabase
    from backends.control.known_secrets import KEY_PEPPER, check_secrets

    database = ControlDatabase(settings.database_address)
    try:
        check_secrets(database, settings.secrets, (KEY_PEPPER,))
        keep_installation_id(settings.secrets, settings.secrets.get_or_create(KEY_PEPPER))
    except (ConfigurationError, ControlUnavailable) as error:
        _log.warning("the installation has no id yet", extra={"reason": error.message})
    finally:
        database.close()


def control_file(settings: MigrationSettings) -> Path | None:
    """Return the control database's file if it lies in the data directory."""
    file = settings.data / "control.db"
    return file if settings.database_address == control_database_url("", settings.data) else None


if __name__ == "__main__":
    sys.exit(main())
