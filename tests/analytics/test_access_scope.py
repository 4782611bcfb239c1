"""What a viewer who is bound to a tenant or team can get out of the store: by the program, and by the store itself."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.access_scope import EVERYTHING, AccessScope, BoundStore
from analytics.distinct import distinct, distinct_of_team
from analytics.overview import overview
from analytics.queries import query, query_names
from analytics.scope import Scope
from analytics.series import series
from backends.store.address import StoreAddress
from backends.store.client import StoreClient
from backends.store.columns import arrow_batch
from backends.store.row_policies import POLICIES, TEAM_READER, TEAM_TABLES, TENANT_READER, TENANT_TABLES
from contracts.access.identity import Identity
from contracts.errors import NotFound, PermissionDenied
from contracts.metering.usage import Usage
from contracts.recording.names import REQUESTS
from contracts.recording.records import RequestRecord

NOW = datetime.now(UTC)
LEAD = AccessScope("acme", "search")
NOWHERE = StoreAddress("http://127.0.0.1:1", "tollkeeper", "reader", "")
RULES = {"retention"}  # of a whole tenant: also for who sees one team of it


def scope(**whose: str | None) -> Scope:
    return replace(Scope.last(timedelta(hours=1), NOW), **whose)  # type: ignore[arg-type]  # names of its fields


def request(tenant: str, team: str, cost: int, model: str = "llama") -> RequestRecord:
    return RequestRecord(
        request_id=uuid4().bytes,
        started_at_ns=int((NOW - timedelta(seconds=30)).timestamp() * 1e9),
        duration_ns=10**9,
        who=Identity(tenant, team),
        model=model,
        ttft_ns=250_000_000,
        usage=Usage(input_text=1_000, output_text=3),
        cost_pico_usd=cost,
    )


@pytest.fixture
def filled(empty_store: Any) -> Any:
    """A store with requests of two tenants, one of them with two teams."""
    records = [
        request("acme", "search", 1_000_000),
        request("acme", "ads", 20_000_000, "qwen"),
        request("globex", "search", 300_000_000),
    ]
    writer = empty_store.client("writer")
    writer.insert_arrow("requests", arrow_batch(REQUESTS, records), deduplication_token=uuid4().hex)
    writer.close()
    return empty_store


@pytest.fixture
def bound(filled: Any) -> Iterator[Any]:
    """Provide `bound(reach)`: a client held to it, as the store's user with row policies."""
    made: list[StoreClient] = []

    def client(access: AccessScope) -> StoreClient:
        user = TENANT_READER if access.team is None else TEAM_READER
        address = replace(filled.client("reader").address, user=user)
        made.append(BoundStore(address, access, is_policed=True))
        return made[-1]

    yield client
    for each in made:
        each.close()


def test_narrowing_gives_ones_own_and_refuses_anothers() -> None:
    assert LEAD.narrowed(None) == LEAD.narrowed("acme", "search") == ("acme", "search")
    assert EVERYTHING.narrowed("globex", "ads") == ("globex", "ads")
    for tenant, team in (("globex", None), ("acme", "ads"), ("globex", "search")):
        with pytest.raises(NotFound):
            LEAD.narrowed(tenant, team)


@given(st.sampled_from(["tenant", "team"]), st.one_of(st.none(), st.text(max_size=8)))
def test_no_question_leaves_the_program_that_is_not_held_to_the_reach(name: str, other: str | None) -> None:
    whole = {"tenant": "acme", "team": "search"}
    asked = "SELECT 1 WHERE {tenant:String} = '' AND {team:String} = ''"
    if other != whole[name]:
        with pytest.raises(PermissionDenied, match=f"this is not stored by {name}"):
            BoundStore(NOWHERE, LEAD).query(asked, {**whole, name: other})
    with pytest.raises(PermissionDenied):
        BoundStore(NOWHERE, LEAD).query(asked.replace(f"{{{name}:String}}", "''"), whole)


def test_every_way_to_ask_is_held() -> None:
    store = BoundStore(NOWHERE, LEAD)
    for ask in (store.query, store.query_columns, store.query_frame, store.command, store.stream):
        with pytest.raises(PermissionDenied):
            ask("SELECT count() FROM requests")


def test_every_query_that_takes_a_tenant_or_team_is_held_by_it() -> None:
    """A query that binds the tenant and compares nothing with it would pass the check and show all. One that is for all
    tenants together may say so by answering nothing if one is given.
    """
    for name in query_names():
        sql = query(name)
        for column in ("tenant", "team"):
            if (name, column) == ("deleted_requests", "team"):
                continue  # of a whole tenant's rules, which name no team
            if f"{{{column}:" in sql:
                holds = (
                    f"= {{{column}:",
                    f"has(tenants, {{{column}:",
                    f"WHERE {{{column}:Nullable(String)}} IS NULL\n",
                )
                assert any(each in sql for each in holds), f"{name}: {column}"


def test_a_lead_sees_the_numbers_of_the_own_team_alone(bound: Any) -> None:
    mine = scope(tenant="acme", team="search")
    answer = overview(bound(LEAD), mine)
    assert [(line.tenant, line.model) for line in answer.lines] == [("acme", "llama")]
    assert (answer.total.requests, str(answer.total.cost_usd)) == (1, "0.000001000000")
    assert list(series(bound(LEAD), mine, "model").groups) == ["llama"]
    assert [seen.value for seen in distinct_of_team(bound(LEAD), "model", "acme", "search", NOW)] == ["llama"]


def test_a_finance_viewer_of_a_tenant_sees_that_tenant_alone(bound: Any) -> None:
    store = bound(AccessScope("acme"))
    assert overview(store, scope(tenant="acme")).total.requests == 2
    assert [seen.value for seen in distinct(store, "tenant", "acme")] == ["acme"]
    for other in (None, "globex"):
        with pytest.raises(PermissionDenied):
            overview(store, scope(tenant=other))


def test_the_store_itself_holds_back_what_a_query_forgets_to_filter(filled: Any, bound: Any) -> None:
    """As if the program's own check were not there: the question goes to the store's user past `BoundStore`."""
    everything = "SELECT DISTINCT tenant, team FROM requests ORDER BY tenant, team"
    assert len(filled.client("reader").query(everything)) == 3
    lead = bound(LEAD)
    told = {"log_comment": '{"tenant":"acme","team":"search"}'}
    assert StoreClient(lead.address).query(everything, settings=told) == [{"tenant": "acme", "team": "search"}]
    assert StoreClient(lead.address).query(everything) == []  # who says nothing of itself
    assert StoreClient(lead.address).query(everything, settings={"log_comment": '{"tenant":"","team":""}'}) == []


def test_what_is_kept_for_all_teams_together_is_not_for_a_lead(bound: Any) -> None:
    with pytest.raises(PermissionDenied, match="covers all tenants or teams together"):
        bound(LEAD).query(
            "SELECT * FROM latency_day WHERE tenant = {tenant:String} AND {team:String} != ''",
            {"tenant": "acme", "team": "search"},
        )


def test_every_table_that_is_kept_by_tenant_has_its_policy(store: Any) -> None:
    client = store.client("reader")
    found = client.query(
        "SELECT c.table AS name, countIf(c.name = 'team') AS teams FROM system.columns AS c "
        "INNER JOIN system.tables AS t ON t.database = c.database AND t.name = c.table "
        "WHERE c.database = currentDatabase() AND c.name IN ('tenant', 'team') AND c.default_kind != 'ALIAS' "
        "AND t.engine NOT LIKE '%View' "
        "AND t.engine != 'Null' GROUP BY name HAVING countIf(c.name = 'tenant') > 0"
    )
    client.close()
    by_tenant = {str(row["name"]) for row in found}
    assert by_tenant == {*TENANT_TABLES, *RULES} == set(POLICIES[TENANT_READER])
    assert {str(row["name"]) for row in found if row["teams"]} == set(TEAM_TABLES)
    assert set(POLICIES[TEAM_READER]) == {*TEAM_TABLES, *RULES}
