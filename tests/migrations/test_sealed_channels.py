"""Migration 0008: addresses of channels that were kept as they are are sealed, and can be opened again."""

from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import text

from backends.control.database import ControlDatabase
from backends.control.sealer import Sealer
from backends.secrets.secret_files import SecretFiles
from contracts.errors import ConfigurationError
from migrations.database import alembic_config, migrate_database

ROWS = {
    "ops": ("slack", "https://hooks.slack.example/services/T0/B0/hidden", "https://hooks.slack.example/..."),
    "pager": ("pagerduty", "a" * 28 + "1234", "...1234"),
    "mail": ("email", "ops@example.com", "ops@example.com"),
    "long": ("webhook", "https://a.example/" + "x" * 482, "https://a.example/..."),
}
INSERT = """
INSERT INTO alert_channels (id, tenant_id, kind, address, created_at) VALUES (:id, '', :kind, :address, :made)
"""


def addresses(database: ControlDatabase) -> dict[str, str]:
    with database.session() as session:
        return {row.id: row.address for row in session.execute(text("SELECT id, address FROM alert_channels"))}


def test_addresses_are_sealed_by_the_migration_and_opened_by_its_undoing(
    control_database: ControlDatabase, control_database_url: str, tmp_path: Path
) -> None:
    secrets = SecretFiles(tmp_path / "secrets")
    config = alembic_config()
    config.attributes["database"] = control_database
    config.attributes["secrets"] = secrets
    command.downgrade(config, "0007")
    with control_database.session() as session:
        for name, (kind, address, _) in ROWS.items():
            row = {"id": name, "kind": kind, "address": address, "made": "2026-11-02 12:00:00+00:00"}
            session.execute(text(INSERT), row)

    with pytest.raises(ConfigurationError, match="python -m migrations"):
        migrate_database(control_database_url, say=lambda line: None)
    assert addresses(control_database) == {name: address for name, (_, address, _) in ROWS.items()}

    migrate_database(control_database_url, say=lambda line: None, secrets=secrets)
    sealer, kept = Sealer.of(secrets), addresses(control_database)
    assert {name: sealer.open(sealed) for name, sealed in kept.items()} == {
        name: address for name, (_, address, _) in ROWS.items()
    }
    with control_database.session() as session:
        shown = {row.id: row.shown for row in session.execute(text("SELECT id, shown FROM alert_channels"))}
    assert shown == {name: shown for name, (_, _, shown) in ROWS.items()}

    command.downgrade(config, "0007")
    assert addresses(control_database) == {name: address for name, (_, address, _) in ROWS.items()}
    command.upgrade(config, "head")
