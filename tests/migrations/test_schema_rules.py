"""What a migration may do, so that the release before goes on working beside this one (docs/operations.md)."""

import re

import pytest

from migrations.database import SCRIPTS as CONTROL_SCRIPTS
from migrations.store import StoreMigration, read_migrations

# Those up to here were applied before the rules were written down.
STORE_BEFORE, CONTROL_BEFORE = 31, 17
EXCEPTION = "Breaks the release before:"  # in a comment, with the reason, if it cannot be helped
BASES = (
    "requests|attempts|engine_steps|kv_events|gpu_samples|traces|logs|metrics|content|batch_claims|feedback|retention"
)
REFUSED_OF_STORE = {
    "takes something away that the release before reads or writes": r"\b(DROP|RENAME) (COLUMN|TABLE)\b|^RENAME\b",
    "changes what a column holds": r"\bMODIFY COLUMN (?!(IF EXISTS )?\w+ (CODEC|REMOVE|COMMENT|\S+ ALIAS)\b)",
    "empties a table that collectors fill": rf"\bTRUNCATE TABLE (IF EXISTS )?({BASES})$",
}
REFUSED_OF_CONTROL = r"op\.(drop_column|drop_table|rename_table)\(|new_column_name="


def later_store_migrations() -> list[StoreMigration]:
    return [one for one in read_migrations() if one.version > STORE_BEFORE and EXCEPTION not in one.sql]


def broken_rules(migration: StoreMigration) -> list[str]:
    statements = list(migration.statements())
    found = [
        rule
        for rule, pattern in REFUSED_OF_STORE.items()
        if any(re.search(pattern, statement, re.MULTILINE) for statement in statements)
    ]
    dropped = {name for one in statements for name in re.findall(r"^DROP VIEW IF EXISTS (\w+)", one)}
    made = {
        name for one in statements for name in re.findall(r"^CREATE (?:MATERIALIZED )?VIEW IF NOT EXISTS (\w+)", one)
    }
    # A view that comes back under its name keeps the tokens of inserts; one of another source has another name. One
    # that stays away leaves a rollup behind.
    filled = {name.partition("_from_")[0] for name in made}
    left = {name for name in dropped - made if name.partition("_from_")[0] not in filled}
    return [*found, *(["takes a view away"] if left else [])]


def test_migrations_of_the_store_leave_the_release_before_working() -> None:
    assert {one.label: rules for one in later_store_migrations() if (rules := broken_rules(one))} == {}


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE requests DROP COLUMN model",
        "ALTER TABLE requests RENAME COLUMN model TO name",
        "ALTER TABLE requests\n    MODIFY COLUMN IF EXISTS model UInt8",
        "DROP TABLE requests_day",
        "RENAME TABLE requests TO calls",
        "TRUNCATE TABLE IF EXISTS requests",
        "DROP VIEW IF EXISTS requests_day_from_requests",
        "DROP VIEW IF EXISTS requests_day_from_requests;\n"
        "CREATE MATERIALIZED VIEW IF NOT EXISTS requests_hour_from_requests TO requests_hour AS\nSELECT 1",
    ],
)
def test_a_statement_that_the_release_before_cannot_live_with_is_found(statement: str) -> None:
    assert broken_rules(StoreMigration(99, "bad", f"{statement};\n"))


def test_what_the_rules_allow_is_not_found() -> None:
    allowed = (
        "ALTER TABLE requests ADD COLUMN IF NOT EXISTS more UInt8 DEFAULT 0;\n"
        "ALTER TABLE requests_day MODIFY COLUMN IF EXISTS requests CODEC(T64, ZSTD(1));\n"
        "DROP VIEW IF EXISTS a_from_b;\nTRUNCATE TABLE IF EXISTS a;\nINSERT INTO a SELECT 1;\n"
        "CREATE MATERIALIZED VIEW IF NOT EXISTS a_from_b TO a AS\nSELECT 1 FROM b;\n"
        "DROP VIEW IF EXISTS c_from_b;\n"
        "CREATE MATERIALIZED VIEW IF NOT EXISTS c_from_a TO c AS\nSELECT 1 FROM a;\n"
    )
    assert broken_rules(StoreMigration(99, "good", allowed)) == []


def test_migrations_of_the_control_database_leave_the_release_before_working() -> None:
    found = []
    for path in sorted((CONTROL_SCRIPTS / "versions").glob("[0-9]*.py")):
        text = path.read_text()
        upgrade = text.partition("def upgrade(")[2].partition("\ndef downgrade(")[0]
        if int(path.name[:4]) > CONTROL_BEFORE and EXCEPTION not in text and re.search(REFUSED_OF_CONTROL, upgrade):
            found.append(path.name)
    assert found == []
