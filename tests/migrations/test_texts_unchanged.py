"""The store's migrations keep their text, comments included: an installation that has applied one refuses another."""

import hashlib
from pathlib import Path

from migrations import store

_LISTED = Path(__file__).with_name("checksums.txt")


def test_no_migration_of_the_store_has_changed():
    folder = Path(store.__file__).parent / "clickhouse"
    found = [f"{hashlib.sha256(file.read_bytes()).hexdigest()} {file.name}" for file in sorted(folder.glob("*.sql"))]
    assert found == _LISTED.read_text().splitlines(), (
        "restore the migration and put the change in a new one; list a new one, or one of no release yet, "
        "with `sha256sum` in tests/migrations/checksums.txt"
    )
