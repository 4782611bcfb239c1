"""From a flood at a gateway to what the command line and alerts read: through the control database."""

import asyncio
import shutil
from datetime import UTC, datetime
from pathlib import Path

from backends.control import keys, organisation
from backends.control.abuse_incidents import list_incidents
from backends.control.bootstrap import DEMO_MODEL, add_demo
from backends.control.changes import Author
from backends.control.database import ControlDatabase
from backends.control.guardrails import create_guardrail
from backends.control.keys import KeyRequest
from backends.secrets.secret_files import SecretFiles
from gateway.process.app import Gateway
from gateway.process.settings import GatewaySettings
from tests.gateway.conftest import KEY, Running

_RULES = {"flood": {"limit": 1, "window_seconds": 600, "action": "throttle"}}
_POLICY = {"stages": [{"name": "abuse", "detector": "abuse", "action": "flag", "settings": _RULES}]}


async def test_an_incident_is_in_the_control_database_within_seconds(migrated_sqlite: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{shutil.copy(migrated_sqlite, tmp_path / 'control.db')}"
    pepper = SecretFiles(tmp_path / "secrets").get_or_create("key_pepper").encode()
    author = Author("ada", datetime.now(UTC))
    database = ControlDatabase(url)
    with database.session() as session:
        add_demo(session, author, "tk-" + "D" * 43, pepper)
        organisation.create_tenant(session, author, "acme", "Acme")
        keys.create_key(session, author, KeyRequest(tenant_id="acme", name="k"), KEY, pepper)
        create_guardrail(session, author, "abuse", _POLICY)
    process = Gateway(GatewaySettings(data=tmp_path, database_url=url, gateway_port=0, collector_url=""))
    await process.start()
    gateway = Running(process)
    try:
        statuses = [(await gateway.chat(model=DEMO_MODEL)).status for _ in range(3)]
        assert statuses == [200, 429, 429]
        async with asyncio.timeout(30):
            while True:
                with database.session() as session:
                    found = list_incidents(session, is_open=True, now=datetime.now(UTC))
                if found and found[0].throttled == 2:
                    break
                await asyncio.sleep(0.05)
    finally:
        await gateway.close()
        database.close()
    (incident,) = found
    assert (incident.tenant, incident.kind, incident.peak, incident.limit) == ("acme", "flood", 2, 1)
