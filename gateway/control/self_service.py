"""Own keys over HTTP: people of one tenant create capped keys for themselves, and see their usage."""

import os
from datetime import datetime
from typing import Annotated, Final

from fastapi import APIRouter, Path, Request
from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from backends.control import budgets, keys
from backends.control.budgets import NewBudget
from backends.control.keys import KeyRequest
from contracts.access.keys import KEY_RANDOM_BYTES, new_key
from contracts.control import ApiKey, Budget
from contracts.errors import Conflict, NotFound, PermissionDenied
from contracts.pricing.money import pico_usd
from contracts.recording.moments import unix_ns
from contracts.rules.periods import budget_period
from contracts.rules.rule_words import exact_text
from gateway.control.access import Admin, Caller
from gateway.control.fields import Body, Database, Name, Resource
from gateway.control.people import OwnKeyRules

router = APIRouter(prefix="/v1/self", tags=["self-service"])

KeyPath = Annotated[str, Path(max_length=40, description="The key's id, `key_...`")]
_PERIOD: Final = "month"
_MAX_LISTED: Final = 200  # of revoked ones too


class OwnKeyBody(Body):
    """A new key for yourself."""

    name: Name


class OwnKeyOut(Resource):
    """A key of one's own, without its secret. Amounts are exact decimal text in USD, of the current period."""

    id: str
    name: str
    hint: str
    team_id: str
    created_at: datetime
    revoked_at: datetime | None
    cap_usd: str | None = Field(description="null: the key has no budget of its own")
    spent_usd: str | None
    period_end: datetime | None


class NewOwnKeyOut(OwnKeyOut):
    """A new key. `secret` is shown once."""

    secret: str


class OwnKeysOut(Resource):
    """The caller's own keys, including revoked ones, newest first, and the rules for a new one."""

    data: list[OwnKeyOut]
    most: int
    cap_usd: str
    period: str = _PERIOD


@router.get("/keys", summary="List your own keys with their usage")
def list_own(author: Admin, database: Database, request: Request) -> OwnKeysOut:
    rules: OwnKeyRules = request.app.state.own_key_rules
    user_id = _account_of(author)
    with database.session() as session:
        own = select(ApiKey).where(ApiKey.user_id == user_id).order_by(ApiKey.id.desc()).limit(_MAX_LISTED)
        rows = [_shown(session, key, author) for key in session.scalars(own)]
    return OwnKeysOut(data=rows, most=rules.most, cap_usd=format(rules.usd, "f"))


@router.post("/keys", status_code=201, summary="Create a key for yourself; its secret is shown once")
def create(body: OwnKeyBody, author: Admin, database: Database, request: Request) -> NewOwnKeyOut:
    """The key belongs to your team, has a hard monthly budget, and ends with your account."""
    rules: OwnKeyRules = request.app.state.own_key_rules
    user_id = _account_of(author)
    secret = new_key(os.urandom(KEY_RANDOM_BYTES))
    pepper: bytes = request.app.state.key_pepper
    wanted = KeyRequest(tenant_id=author.tenant_id, team_id=author.team_id, name=body.name, user_id=user_id)
    with database.session() as session:
        made = keys.create_key(session, author, wanted, secret, pepper)
        if len(keys.keys_of_user(session, user_id)) > rules.most:  # under the write lock of the change
            raise Conflict(
                f"you have {rules.most} keys, the most that one person may have; revoke one first"
                if rules.most
                else "self-service keys are off here; ask an administrator for a key (TOLLKEEPER_OWN_KEYS)"
            )
        # The cap is the installation's, not the person's: it is no right of theirs to set or to lift.
        cap = NewBudget(author.tenant_id, "key", _PERIOD, amount_usd=rules.usd, subject=made.id, thresholds=(80,))
        budgets.create_budget(session, author, cap)
        return NewOwnKeyOut(secret=secret, **_shown(session, made, author).model_dump())


@router.delete("/keys/{key}", summary="Revoke a key of your own, on every gateway within a second")
def revoke(key: KeyPath, author: Admin, database: Database) -> OwnKeyOut:
    user_id = _account_of(author)
    with database.session() as session:
        found = session.get(ApiKey, key)
        if found is None or found.user_id != user_id:
            raise NotFound(f"you have no key {key!r}; `GET /v1/self/keys` lists yours")
        return _shown(session, keys.revoke_key(session, author, found.tenant_id, key), author)


def _account_of(author: Caller) -> str:
    """Return the account that makes a request. Raise PermissionDenied if there is none, or it belongs to no tenant."""
    if not author.account_id or not author.tenant_id:
        raise PermissionDenied(
            "own keys belong to an account of one tenant; sign in with one, or make keys with `tollkeeper keys create`"
        )
    return author.account_id


def _shown(session: Session, key: ApiKey, author: Caller) -> OwnKeyOut:
    of_key = (Budget.tenant_id == key.tenant_id, Budget.level == "key", Budget.subject == key.id)
    row = session.scalars(select(Budget).where(*of_key, Budget.amount_usd.is_not(None)).limit(1)).first()
    spent, period_end = None, None
    if row is not None:
        spec = budgets.spec_of(session, row)
        bounds = budget_period(spec, unix_ns(author.at))
        if bounds is not None:
            used = budgets.spent_of(session, row.id, bounds[0]).get(key.id)
            spent = exact_text("pico_usd", 0 if used is None else used.total)
            period_end = None if bounds[1] is None else datetime.fromtimestamp(bounds[1] / 1e9, author.at.tzinfo)
    return OwnKeyOut(
        id=key.id,
        name=key.name,
        hint=key.hint,
        team_id=key.team_id,
        created_at=key.created_at,
        revoked_at=key.revoked_at,
        cap_usd=None if row is None or row.amount_usd is None else exact_text("pico_usd", pico_usd(row.amount_usd)),
        spent_usd=spent,
        period_end=period_end,
    )
