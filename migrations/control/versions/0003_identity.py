"""Identity: secrets that outlive a rotation, identity providers, bounds of admin tokens, and what changed when.

Why: a rotated key keeps its id while its former secret still works; a gateway reads only the keys that changed since
the revision it knows, so that one of 100,000 is revoked in under a second.
Undo: `downgrade` drops identity providers, and ends every former secret and every bound of admin tokens: tokens that
were bound to a tenant or had an end are deleted, since without the bound they would reach further.
Locks: `api_keys` is locked while its index is built, below a second for 100,000 keys.

Revision: 0003, after 0002
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Make the tables and columns; everything there counts as changed before any revision that comes."""
    _extend_keys()
    _create_issuers()
    for name, length in (("hint", 8), ("tenant_id", 63), ("team_id", 63)):
        op.add_column("admin_tokens", sa.Column(name, sa.String(length), server_default=sa.text("''"), nullable=False))
    op.add_column("admin_tokens", sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True))
    for name in ("rules", "serving", "keys_floor"):
        op.add_column("revision", sa.Column(name, sa.BigInteger(), server_default=sa.text("0"), nullable=False))
    op.execute("UPDATE revision SET rules = number, serving = number, keys_floor = number")


def downgrade() -> None:
    """Drop what `upgrade` made."""
    for name in ("keys_floor", "serving", "rules"):
        op.drop_column("revision", name)
    op.execute("DELETE FROM admin_tokens WHERE tenant_id <> '' OR team_id <> '' OR expires_at IS NOT NULL")
    for name in ("expires_at", "team_id", "tenant_id", "hint"):
        op.drop_column("admin_tokens", name)
    op.drop_table("issuers")
    op.drop_table("former_secrets")
    op.drop_index("ix_api_keys_changed_revision", "api_keys")
    op.drop_column("api_keys", "changed_revision")
    op.drop_column("api_keys", "rotated_at")
    op.add_column("api_keys", sa.Column("replaces_id", sa.String(40), nullable=True))


def _extend_keys() -> None:
    op.drop_column("api_keys", "replaces_id")  # never written: a rotation keeps the key and replaces its secret
    op.add_column("api_keys", sa.Column("rotated_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column(
        "api_keys", sa.Column("changed_revision", sa.BigInteger(), server_default=sa.text("0"), nullable=False)
    )
    op.create_index("ix_api_keys_changed_revision", "api_keys", ["changed_revision"])
    op.create_table(
        "former_secrets",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("key_id", sa.String(40), nullable=False),
        sa.Column("hint", sa.String(8), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["key_id"], ["api_keys.id"], name=op.f("fk_former_secrets_key_id_api_keys"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_former_secrets")),
    )
    op.create_index("ix_former_secrets_key_id", "former_secrets", ["key_id"])


def _create_issuers() -> None:
    op.create_table(
        "issuers",
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("issuer", sa.String(500), nullable=False),
        sa.Column("audience", sa.String(500), nullable=False),
        sa.Column("keys_url", sa.String(500), nullable=False),
        sa.Column("algorithms", sa.JSON(), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("tenant_claim", sa.String(200), nullable=False),
        sa.Column("team_claim", sa.String(200), nullable=False),
        sa.Column("project_claim", sa.String(200), nullable=False),
        sa.Column("user_claim", sa.String(200), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_issuers")),
        sa.UniqueConstraint("issuer", "audience", name=op.f("uq_issuers_issuer")),
    )
