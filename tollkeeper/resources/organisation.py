"""Resources of billing and access: tenants, teams, projects, keys, tokens, issuers."""

from typing import Final

from contracts.rules.limits import PERIODS
from tollkeeper.resources.resource import Column, Field, Resource, active, moment, of
from tollkeeper.resources.shared import SCOPES, TEAM, TENANT, named, word

TENANTS: Final = Resource(
    name="tenants",
    noun="tenant",
    about="Organisations: the top level for billing and isolation.",
    path="/v1/tenants",
    fields=(
        Field("name", "Display name (default: the id)."),
        Field("time_zone", "IANA time zone of its budget periods (default UTC)."),
        Field(
            "weight", "Share of capacity under contention, relative to other tenants, 1 to 1000 (default 1).", "whole"
        ),
        Field("is_active", "Accept its keys, or refuse them all.", "flag", "--active/--inactive", verbs=("set",)),
        Field(
            "keeps_content",
            "Store its prompts and answers, redacted.",
            "flag",
            "--content/--no-content",
            verbs=("set",),
        ),
        Field(
            "audits_requests", "Write its requests into the audit log.", "flag", "--audit/--no-audit", verbs=("set",)
        ),
    ),
    columns=(of("id"), of("name"), of("time_zone"), active(), moment()),
    examples=(
        "tollkeeper tenants create acme --name 'Acme GmbH' --time-zone Europe/Berlin",
        "tollkeeper tenants list",
        "tollkeeper tenants show acme",
        "tollkeeper tenants set acme --weight 3",
        "tollkeeper tenants delete acme",
    ),
    body=named,
    help={"delete": "Deactivate a tenant: its keys are refused within a second. Its records stay."},
    deleted="deactivated",
    next="tollkeeper keys create --tenant {key} --name NAME",
    module="tollkeeper.tenant_commands",
)


TEAMS: Final = Resource(
    name="teams",
    noun="team",
    about="Groups within a tenant, for keys, limits, budgets and reports.",
    path="/v1/tenants/{tenant}/teams",
    parents=(TENANT,),
    fields=(Field("name", "Display name (default: the id)."),),
    columns=(of("id"), of("tenant_id"), of("name"), moment()),
    body=named,
    help={"delete": "Delete a team and its projects. Refused while keys of the team are in use."},
    examples=(
        "tollkeeper teams create web --tenant acme --name 'Web shop'",
        "tollkeeper teams list --tenant acme",
        "tollkeeper teams show web",
        "tollkeeper teams set web --name 'Web and app'",
        "tollkeeper teams delete web --tenant acme",
    ),
    next="tollkeeper keys create --tenant {tenant} --team {key} --name NAME",
)


PROJECTS: Final = Resource(
    name="projects",
    noun="project",
    about="Projects of a team, for keys, limits and reports.",
    path="/v1/tenants/{tenant}/teams/{team}/projects",
    parents=(TENANT, TEAM),
    fields=(Field("name", "Display name (default: the id)."),),
    columns=(of("id"), of("tenant_id"), of("team_id"), of("name"), moment()),
    body=named,
    help={"delete": "Delete a project. Refused while keys of the project are in use."},
    examples=(
        "tollkeeper projects create search --tenant acme --team web",
        "tollkeeper projects list --tenant acme",
        "tollkeeper projects show search",
        "tollkeeper projects set search --name 'Product search'",
        "tollkeeper projects delete search",
    ),
)


KEYS: Final = Resource(
    name="keys",
    noun="key",
    about="API keys of applications.",
    path="/v1/tenants/{tenant}/keys",
    parents=(TENANT,),
    is_key_given=False,
    fields=(
        Field("name", "Purpose, such as the application's name.", is_required=True, verbs=("create",)),
        Field("name", "Purpose, such as the application's name.", verbs=("set",)),
        Field("team", "Team it belongs to.", verbs=("create",)),
        Field("project", "Project it belongs to; needs --team.", verbs=("create",)),
        Field("expires_at", "When it expires, such as 2027-01-31T00:00:00Z (default: never)."),
        Field(
            "is_service_account",
            "Used by a program, or by a person.",
            "flag",
            "--service-account/--person",
            verbs=("create",),
        ),
        Field("budget_usd", "Hard budget of this key in USD, such as 25; needs --budget-period.", verbs=("create",)),
        Field(
            "budget_period",
            "Period of that budget.",
            choices=PERIODS,
            verbs=("create",),
        ),
        *SCOPES,
    ),
    columns=(
        of("id"),
        of("name"),
        of("tenant_id"),
        of("team_id"),
        Column("hint", lambda row: f"…{row['hint']}"),
        Column("status", word("key_status")),
        moment(),
    ),
    examples=(
        "tollkeeper keys create --tenant acme --team web --name shop",
        "tollkeeper keys create --tenant acme --name ci --budget-usd 25 --budget-period month",
        "tollkeeper keys list --tenant acme",
        "tollkeeper keys show key_01a2",
        "tollkeeper keys set key_01a2 --model gpt-4o-mini --expires-at 2027-01-31T00:00:00Z",
        "tollkeeper keys delete key_01a2",
    ),
    help={
        "create": "Create a key. Its secret is printed once, alone on stdout.",
        "delete": "Revoke a key on every gateway within a second. This cannot be undone.",
    },
    secret="secret",
    deleted="revoked",
    module="tollkeeper.keys",
)


TOKENS: Final = Resource(
    name="tokens",
    noun="token",
    about="Admin tokens: who may use the control plane's API, with which role.",
    path="/v1/tokens",
    is_key_given=False,
    fields=(
        Field("name", "Name of the token or its owner; shown in the audit log.", is_required=True, verbs=("create",)),
        Field(
            "role",
            "Role of the token; `directory` is for SCIM provisioning only.",
            choices=("owner", "admin", "finance", "team_lead", "directory"),
            is_required=True,
            verbs=("create",),
        ),
        Field("tenant", "Restrict it to this tenant (default: all).", verbs=("create",)),
        Field("team", "Restrict it to this team of the tenant; for team leads.", verbs=("create",)),
        Field("expires_at", "When it expires, such as 2027-01-31T00:00:00Z (default: never).", verbs=("create",)),
    ),
    columns=(of("id"), of("name"), Column("role", word("role_of")), Column("status", word("token_status")), moment()),
    examples=(
        "tollkeeper tokens create --name ci --role admin --expires-at 2027-01-31T00:00:00Z",
        "tollkeeper tokens list",
        "tollkeeper tokens show tok_01a2",
        "tollkeeper tokens delete tok_01a2",
    ),
    verbs=("create", "list", "show", "delete"),
    help={
        "create": "Create an admin token. Its secret is printed once, alone on stdout.",
        "delete": "Revoke an admin token and all tokens created with it. This cannot be undone.",
    },
    secret="secret",
    deleted="revoked",
)


ISSUERS: Final = Resource(
    name="issuers",
    noun="issuer",
    about="Identity providers whose tokens applications send instead of keys.",
    path="/v1/issuers",
    fields=(
        Field("issuer", "Required value of the tokens' iss claim.", is_required=True, verbs=("create",)),
        Field("issuer", "Required value of the tokens' iss claim.", verbs=("set",)),
        Field("audience", "Required value in the tokens' aud claim.", is_required=True, verbs=("create",)),
        Field("audience", "Required value in the tokens' aud claim.", verbs=("set",)),
        Field("keys_url", "URL of its signing keys (JWKS; default: by discovery)."),
        Field("algorithms", "Signature algorithm (default RS256 and ES256); repeat for more.", "list", "--algorithm"),
        Field("tenant", "Tenant of all requests with this issuer's tokens.", is_null_if_empty=True),
        Field("tenant_claim", "Claim that names the tenant, instead of --tenant."),
        Field("team_claim", "Claim that names the team."),
        Field("project_claim", "Claim that names the project."),
        Field("user_claim", "Claim that names the end user (default sub)."),
        *SCOPES,
    ),
    columns=(
        of("id"),
        of("issuer"),
        of("audience"),
        Column("tenant", lambda row: row["tenant_id"] or f"claim {row['tenant_claim']}"),
        of("scopes"),
    ),
    examples=(
        "tollkeeper issuers create sso --issuer https://login.acme.example --audience llm --tenant acme",
        "tollkeeper issuers list",
        "tollkeeper issuers show sso",
        "tollkeeper issuers set sso --team-claim groups",
        "tollkeeper issuers delete sso",
    ),
    help={"delete": "Delete an issuer: gateways refuse its tokens within a second."},
)
