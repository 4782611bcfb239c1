"""Settings of the control plane, from TOLLKEEPER_* variables."""

from decimal import Decimal
from pathlib import Path

from pydantic import Field

from backends.audit.options import AuditOptions
from backends.channels.inward import NetworksText
from backends.secrets.credential_references import DEFAULT_VARIABLES, ReferenceRules
from backends.web.listener_settings import ListenerSettings
from contracts.serving.configuration import control_database_url
from gateway.control.people import OwnKeyRules, SignInGroups


class ControlSettings(ListenerSettings):
    """Settings of the control plane's process. Ports are TCP ports, sizes bytes."""

    data: Path = Path(".tollkeeper")
    control_port: int = Field(default=8081, ge=1, le=65535)
    database_url: str = ""  # empty: SQLite in the data directory
    credential_variables: str = DEFAULT_VARIABLES  # patterns of variables that references may name, as in the gateway
    credential_directories: str = ""  # below which files may lie; empty: /run/secrets and provider_keys in `data`
    control_max_body_bytes: int = Field(default=1_048_576, ge=1024)
    alerts_inward: NetworksText = ""  # networks that budgets' webhooks may go to though they are not public

    audit_sink: str = ""  # where finished segments of the audit log go: s3://BUCKET/PREFIX, or a directory
    audit_sink_days: int = Field(default=400, ge=1, le=36_500)  # for how long the bucket locks them
    audit_s3_endpoint: str = ""  # of an S3-compatible store that is not Amazon's
    audit_keep_days: int = Field(default=0, ge=0, le=36_500)  # older segments are cut here; 0: none ever

    # An OpenAI-compatible server to offer beside the demonstration. The key itself is read by the data plane,
    # which is why only whether it is set matters here.
    upstream_url: str = ""
    upstream_model: str = ""
    upstream_key: str = Field(default="", repr=False)

    # An engine host of ours to offer, such as unix:///path/run/engine-default.sock, and what it was told to serve.
    engine_url: str = ""
    engine_model: str = ""
    engine_embedder: bool = True

    # The identity provider that people may sign in to the dashboard by, and the client that it knows it as.
    oidc_metadata_url: str = ""
    oidc_client_id: str = ""

    # Who signs in by the identity provider without an account becomes a developer of this tenant; empty: nobody does.
    oidc_tenant: str = Field(default="", max_length=63)
    oidc_groups_claim: str = Field(default="groups", max_length=200)
    oidc_group_prefix: str = Field(default="", max_length=200)  # only groups that begin with it become teams

    # What people may have who make keys for themselves.
    own_keys: int = Field(default=3, ge=0, le=100)  # at once; 0: no self-service
    own_key_usd: Decimal = Field(default=Decimal(10), gt=0, le=1_000_000, decimal_places=6)  # each, in a calendar month

    @property
    def own_key_rules(self) -> OwnKeyRules:
        """Return the rules for keys that users create for themselves."""
        return OwnKeyRules(self.own_keys, self.own_key_usd)

    @property
    def sign_in_groups(self) -> SignInGroups:
        """Return the tenant and the group prefix for people who sign in through the identity provider."""
        return SignInGroups(self.oidc_tenant, self.oidc_group_prefix)

    @property
    def audit_options(self) -> AuditOptions:
        """Return the options of the audit log."""
        return AuditOptions(self.audit_sink, self.audit_sink_days, self.audit_s3_endpoint, self.audit_keep_days)

    @property
    def reference_rules(self) -> ReferenceRules:
        """Return what references to credentials may name."""
        return ReferenceRules.of(self.data, self.credential_variables, self.credential_directories)

    @property
    def database_address(self) -> str:
        """Return the control database's URL; SQLite in the data directory if none is set."""
        return control_database_url(self.database_url, self.data)
