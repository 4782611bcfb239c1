"""Who leaves the control database leaves its billing terms: nobody goes on being invoiced for a commitment."""

import json
from datetime import UTC, datetime

from sqlalchemy import select

from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.erasure import erase_tenant, export_tenant
from backends.control.organisation import TenantChange, create_tenant, update_tenant
from backends.control.rates import NewRate, create_rate, list_rates
from contracts.control import AuditEntry

NOON = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)
AUTHOR = Author("test", NOON)


def test_a_tenant_takes_its_terms_with_it_and_leaves_rates_of_its_name(control_database: ControlDatabase) -> None:
    gpu = {"ownership": "owned", "usd_per_hour": "1"}
    with control_database.session() as session:
        for tenant in ("acme", "globex"):
            create_tenant(session, AUTHOR, tenant, tenant)
            create_rate(session, AUTHOR, NewRate("terms", f"terms-{tenant}", tenant, {"committed_usd": "100"}, NOON))
        create_rate(session, AUTHOR, NewRate("gpu", "gpu-1", "acme", gpu, NOON))
        (told,) = dict(export_tenant(session, "acme"))["cost_rates"]
        assert (json.loads(told)["version"], json.loads(told)["rate"]) == ("terms-acme", {"committed_usd": "100"})
        update_tenant(session, AUTHOR, "acme", TenantChange(is_active=False))
        assert erase_tenant(session, AUTHOR, "acme") == 2  # itself and its terms
        assert [rate.version for rate in list_rates(session)] == ["gpu-1", "terms-globex"]
        subjects = list(session.scalars(select(AuditEntry.subject).where(AuditEntry.action == "rate.create")))
    assert sorted(subjects) == ["erased", "gpu-1", "terms-globex"]
