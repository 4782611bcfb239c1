"""Addresses of alert channels sealed; alerts acknowledged.

Why: who could read the database could post to a channel. What may be shown of an address stands beside it. Who has
taken an alert up is to be seen by others.
Undo: `downgrade` opens the addresses again, with the same key, and forgets who acknowledged what.
Locks: channels are few; the alerts' columns are added empty.

Revision: 0008, after 0007
"""

from collections.abc import Callable

import sqlalchemy as sa
from alembic import context, op

from backends.control.sealer import Sealer
from backends.secrets.secret_files import SecretFiles
from contracts.errors import ConfigurationError
from contracts.rules.alert_channels import shown_address

revision: str = "0008"
down_revision: str | None = "0007"
branch_labels: str | None = None
depends_on: str | None = None

_CHANNELS = sa.table(
    "alert_channels",
    sa.column("id", sa.String),
    sa.column("kind", sa.String),
    sa.column("address", sa.String),
    sa.column("shown", sa.String),
)


def upgrade() -> None:
    """Seal every address with the key of the secrets directory, which is made where channels are and it is not."""
    op.add_column("alerts", sa.Column("acknowledged_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("alerts", sa.Column("acknowledged_by", sa.String(200), nullable=True))
    with op.batch_alter_table("alert_channels") as table:
        table.alter_column("address", existing_type=sa.String(500), type_=sa.String(1000), existing_nullable=False)
        table.add_column(sa.Column("shown", sa.String(500), nullable=False, server_default=""))
    _rewrite(lambda sealer, kind, address: {"address": sealer.seal(address), "shown": shown_address(kind, address)})
    with op.batch_alter_table("alert_channels") as table:
        table.alter_column("shown", existing_type=sa.String(500), existing_nullable=False, server_default=None)


def downgrade() -> None:
    """Open every address."""
    _rewrite(lambda sealer, kind, address: {"address": sealer.open(address)})
    with op.batch_alter_table("alert_channels") as table:
        table.drop_column("shown")
        table.alter_column("address", existing_type=sa.String(1000), type_=sa.String(500), existing_nullable=False)
    op.drop_column("alerts", "acknowledged_by")
    op.drop_column("alerts", "acknowledged_at")


def _rewrite(change: Callable[[Sealer, str, str], dict[str, str]]) -> None:
    if context.is_offline_mode():
        return  # a script of SQL cannot seal: it is for a database without channels
    bind = op.get_bind()
    rows = bind.execute(sa.select(_CHANNELS.c.id, _CHANNELS.c.kind, _CHANNELS.c.address)).all()
    if not rows:
        return
    secrets = context.config.attributes.get("secrets")
    if not isinstance(secrets, SecretFiles):
        raise ConfigurationError(
            "alert channels are sealed with a key of the secrets directory; migrate with `python -m migrations`, which "
            "knows where it is"
        )
    sealer = Sealer.of(secrets)
    for row in rows:
        changed = change(sealer, row.kind, row.address)
        bind.execute(sa.update(_CHANNELS).where(_CHANNELS.c.id == row.id).values(**changed))
