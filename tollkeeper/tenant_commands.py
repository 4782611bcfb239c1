"""`tollkeeper tenants`, with what takes all of a tenant's data out, or away for good."""

from tollkeeper import tenants
from tollkeeper.privacy import erase_tenant_command, export_tenant_command

app = tenants.app
app.command("erase")(erase_tenant_command)
app.command("export")(export_tenant_command)
