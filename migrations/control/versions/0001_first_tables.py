"""The control plane's first tables: organisation, access, serving, spending, watching.

Why: a fresh installation needs all of `contracts.control`.
Undo: `downgrade` drops every table, and with them tenants, keys and prices; take a copy first.
Locks: nothing waits; the tables are new.

Revision: 0001, the first
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0001"
down_revision: str | None = None
branch_labels: str | None = None
depends_on: str | None = None

_TABLES = (
    "tenants",
    "teams",
    "projects",
    "api_keys",
    "users",
    "role_grants",
    "admin_tokens",
    "pools",
    "targets",
    "models",
    "routes",
    "prices",
    "standard_costs",
    "budgets",
    "limits",
    "slos",
    "alerts",
    "audit",
    "revision",
)


def upgrade() -> None:
    """Make the tables, parents first."""
    _create_organisation()
    _create_access()
    _create_serving()
    _create_spending()
    _create_watching()


def downgrade() -> None:
    """Drop the tables, children first."""
    for table in reversed(_TABLES):
        op.drop_table(table)


def _role() -> sa.Enum:
    return sa.Enum("owner", "admin", "finance", "team_lead", name="role", native_enum=False, length=20)


def _create_organisation() -> None:
    op.create_table(
        "tenants",
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("time_zone", sa.String(64), nullable=False),
        sa.Column("weight", sa.Integer(), nullable=False),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tenants")),
    )
    op.create_table(
        "teams",
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_teams_tenant_id_tenants"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("tenant_id", "id", name=op.f("pk_teams")),
    )
    op.create_table(
        "projects",
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("team_id", sa.String(63), nullable=False),
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id", "team_id"],
            ["teams.tenant_id", "teams.id"],
            name=op.f("fk_projects_tenant_id_teams"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("tenant_id", "team_id", "id", name=op.f("pk_projects")),
    )


def _create_access() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("team_id", sa.String(63), nullable=False),
        sa.Column("project_id", sa.String(63), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("hint", sa.String(8), nullable=False),
        sa.Column("is_service_account", sa.Boolean(), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("replaces_id", sa.String(40), nullable=True),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_api_keys_tenant_id_tenants"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("digest", name=op.f("uq_api_keys_digest")),
    )
    op.create_index("ix_api_keys_tenant_id", "api_keys", ["tenant_id"])
    op.create_table(
        "users",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("email", sa.String(320), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("password_digest", sa.String(200), nullable=True),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("email", name=op.f("uq_users_email")),
    )
    op.create_table(
        "role_grants",
        sa.Column("user_id", sa.String(40), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("team_id", sa.String(63), nullable=False),
        sa.Column("role", _role(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_role_grants_user_id_users"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("user_id", "tenant_id", "team_id", name=op.f("pk_role_grants")),
    )
    op.create_table(
        "admin_tokens",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("role", _role(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_admin_tokens")),
        sa.UniqueConstraint("digest", name=op.f("uq_admin_tokens_digest")),
    )


def _create_serving() -> None:
    op.create_table(
        "pools",
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("policy", sa.String(40), nullable=False),
        sa.Column("region", sa.String(63), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pools")),
    )
    op.create_table(
        "targets",
        sa.Column("pool_id", sa.String(63), nullable=False),
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("url", sa.String(500), nullable=False),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("provider", sa.String(63), nullable=False),
        sa.Column("key_ref", sa.String(200), nullable=False),
        sa.Column("weight", sa.Integer(), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_targets_pool_id_pools"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("pool_id", "id", name=op.f("pk_targets")),
    )
    op.create_table(
        "models",
        sa.Column("id", sa.String(200), nullable=False),
        sa.Column("pool_id", sa.String(63), nullable=False),
        sa.Column("description", sa.String(500), nullable=False),
        sa.Column("context_tokens", sa.Integer(), nullable=True),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_models_pool_id_pools")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
    )
    op.create_table(
        "routes",
        sa.Column("id", sa.String(200), nullable=False),
        sa.Column("rules", sa.JSON(), nullable=False),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_routes")),
    )


def _create_spending() -> None:
    op.create_table(
        "prices",
        sa.Column("version", sa.String(120), nullable=False),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("provider", sa.String(63), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("card", sa.JSON(), nullable=False),
        sa.Column("valid_from", sa.DateTime(timezone=True), nullable=False),
        sa.Column("valid_to", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("version", name=op.f("pk_prices")),
    )
    op.create_index("ix_prices_model_valid_from", "prices", ["model", "valid_from"])
    op.create_table(
        "standard_costs",
        sa.Column("version", sa.String(120), nullable=False),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("input_usd_per_mtok", sa.String(40), nullable=False),
        sa.Column("cached_input_usd_per_mtok", sa.String(40), nullable=False),
        sa.Column("output_usd_per_mtok", sa.String(40), nullable=False),
        sa.Column("origin", sa.String(20), nullable=False),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.Column("valid_from", sa.DateTime(timezone=True), nullable=False),
        sa.Column("valid_to", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("version", name=op.f("pk_standard_costs")),
    )
    op.create_index("ix_standard_costs_model_valid_from", "standard_costs", ["model", "valid_from"])
    op.create_table(
        "budgets",
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("level", sa.String(20), nullable=False),
        sa.Column("subject", sa.String(200), nullable=False),
        sa.Column("period", sa.String(20), nullable=False),
        sa.Column("amount_usd", sa.String(40), nullable=True),
        sa.Column("gpu_milliseconds", sa.BigInteger(), nullable=True),
        sa.Column("is_hard", sa.Boolean(), nullable=False),
        sa.Column("thresholds", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_budgets_tenant_id_tenants"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_budgets")),
    )
    op.create_table(
        "limits",
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("level", sa.String(20), nullable=False),
        sa.Column("subject", sa.String(200), nullable=False),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("metric", sa.String(30), nullable=False),
        sa.Column("window", sa.String(20), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_limits_tenant_id_tenants"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_limits")),
    )


def _create_watching() -> None:
    op.create_table(
        "slos",
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("indicator", sa.String(30), nullable=False),
        sa.Column("threshold_ms", sa.Float(), nullable=True),
        sa.Column("target", sa.Float(), nullable=False),
        sa.Column("window_days", sa.Integer(), nullable=False),
        sa.Column("match", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_slos")),
    )
    op.create_table(
        "alerts",
        sa.Column("id", sa.String(63), nullable=False),
        sa.Column("tenant_id", sa.String(63), nullable=False),
        sa.Column("rule", sa.JSON(), nullable=False),
        sa.Column("channel", sa.JSON(), nullable=False),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alerts")),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("action", sa.String(60), nullable=False),
        sa.Column("subject", sa.String(300), nullable=False),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    op.create_index("ix_audit_at", "audit", ["at"])
    op.create_table(
        "revision",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_revision")),
    )
    # The row is there from the start: raising it is what serialises changes.
    op.execute("INSERT INTO revision (id, number) VALUES (1, 0)")
