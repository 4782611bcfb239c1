"""The collector's settings, read from TOLLKEEPER_* variables."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from backends.secrets.record_key import RecordKey, record_key
from backends.segment_log.segments import Fsync
from backends.web.listener_settings import ListenerSettings
from collector.processors.redaction import PATTERNS, What

Port = Annotated[int, Field(ge=0, le=65535)]  # 0: any free port
Bytes = Annotated[int, Field(gt=0)]
Bound = Annotated[int, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
_MIB = 1 << 20


def listed(text: str) -> tuple[str, ...]:
    """Split a comma-separated list."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def quotas_of(text: str) -> dict[str, float]:
    """Read `tenant=records per second`, comma-separated. Raises ValueError."""
    found: dict[str, float] = {}
    for part in listed(text):
        tenant, _, number = part.rpartition("=")
        try:
            found[tenant] = float(number)
        except ValueError as error:
            raise ValueError(f"{part!r} is not tenant=number") from error
        if not tenant or not 0 <= found[tenant] < math.inf:
            raise ValueError(f"{part!r} is not tenant=number")
    return found


def redactions(text: str) -> tuple[What, ...]:
    """Read what to redact. Raises ValueError on what is not known."""
    known = {str(name): name for name in PATTERNS}
    if unknown := [part for part in listed(text) if part not in known]:
        raise ValueError(f"{unknown[0]!r} is not one of {', '.join(known)}")
    return tuple(known[part] for part in listed(text))


def headers_of(text: SecretStr) -> dict[str, str]:
    """Read `name=value`, comma-separated. Raises ValueError, which quotes nothing."""
    found: dict[str, str] = {}
    for part in listed(text.get_secret_value()):
        name, equals, value = part.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise ValueError("a header is name=value; separate several by commas")
        found[name.strip()] = value.strip()
    return found


def _checked_headers(text: SecretStr) -> SecretStr:
    headers_of(text)
    return text


def _checked(read: Callable[[str], object]) -> AfterValidator:
    def check(text: str) -> str:
        read(text)
        return text

    return AfterValidator(check)


Quotas = Annotated[str, _checked(quotas_of)]
Redacted = Annotated[str, _checked(redactions)]
Headers = Annotated[SecretStr, AfterValidator(_checked_headers)]


class CollectorSettings(ListenerSettings):
    """What the collector can be told. Sizes are bytes."""

    data: Path = Path(".tollkeeper")
    collector_port: Port = 4318
    otlp_grpc_port: Port = 4317
    collector_health_port: Port = 13133

    record_signing_key: RecordKey = None  # none: the secret file `record_signing_key`, which gateways have too

    store_url: str = "http://127.0.0.1:8123"
    store_database: str = "tollkeeper"
    store_user: str | None = None  # neither this nor the password: user "writer", secret file `store_writer`
    store_password: SecretStr | None = None

    spool_max_bytes: Bytes = 4096 * _MIB
    spool_retain_bytes: Annotated[int, Field(ge=0)] = 64 * _MIB  # kept after export, to know retried batches again
    spool_fsync: Fsync = "never"  # "always" survives a power cut too
    dead_letter_max_bytes: Bytes = 64 * _MIB

    collector_max_body_bytes: Bytes = 32 * _MIB  # as sent
    collector_max_decompressed_bytes: Bytes = 64 * _MIB
    collector_max_inflight_bytes: Bytes = 128 * _MIB  # of bodies being received at one time
    collector_body_timeout_seconds: Annotated[float, Field(gt=0)] = 30.0
    collector_max_memory_bytes: Bytes = 768 * _MIB  # resident; beyond, senders are asked to come again

    # Of foreign telemetry; packed records of gateways are never refused, limited or sampled.
    collector_tenants: str = ""  # who may be named in it, comma-separated; empty: anybody
    collector_tenant_records_per_second: NotNegative = 0.0  # of each tenant, over ten seconds; 0: no bound
    collector_tenant_quotas: Quotas = ""  # the same for single tenants: "acme=5000,globex=100"
    collector_redact: Redacted = "keys"  # in its values: "keys", "emails", comma-separated
    collector_max_series: Bound = 2000  # of one tenant's, service's and metric's in an hour
    collector_max_names: Bound = 2000  # of one tenant's and service's spans, of its metrics, of its events
    collector_sample_share: Annotated[float, Field(ge=0, le=1)] = 1.0  # of ordinary traces; below 1 tails are sampled
    collector_sample_slow_seconds: NotNegative = 10.0  # a trace with a span this long is kept
    collector_sample_expensive_usd: NotNegative = 0.1  # ... or one of this cost
    collector_sample_wait_seconds: NotNegative = 10.0  # from a trace's first span to its decision
    collector_sample_max_bytes: Bytes = 64 * _MIB  # of spans that wait for it; beyond, the oldest are decided early
    forward_otlp: str = ""  # base URL of another OTLP endpoint that gets what is received; empty: none
    forward_otlp_headers: Headers = SecretStr("")  # for it, such as "authorization=Bearer X", comma-separated
    forward_nats: str = ""  # URL of a NATS server whose JetStream gets it as well; empty: none
    forward_nats_subject: str = "tollkeeper"  # what its subjects begin with; ".logs", ".traces" or ".metrics" follows
    forward_parquet: str = ""  # directory, or s3://BUCKET/PREFIX?region=R, for rows as Parquet files; empty: none
    forward_parquet_tables: str = "requests,attempts,engine_steps,gpu_samples"  # which rows, comma-separated
    forward_parquet_seconds: Annotated[float, Field(gt=0)] = 300.0  # what comes in this time is written together
    forward_prompts: bool = False  # whether prompts in foreign telemetry go on to these destinations
    forward_max_bytes: Bytes = 1024 * _MIB  # that wait for each of them; beyond, what comes is not forwarded
    collector_scrape: str = ""  # URLs of Prometheus pages, comma-separated
    collector_scrape_seconds: Annotated[float, Field(gt=0)] = 15.0

    @property
    def record_key(self) -> bytes:
        """Return what gateways' records are signed with: as set, else the installation's secret."""
        return record_key(self.record_signing_key, self.data)

    @property
    def tenants(self) -> tuple[str, ...]:
        """Who may be named in foreign telemetry; empty: anybody."""
        return listed(self.collector_tenants)

    @property
    def tenant_quotas(self) -> dict[str, float]:
        """Return the records per second of the tenants that have a bound of their own."""
        return quotas_of(self.collector_tenant_quotas)

    @property
    def redacted(self) -> tuple[What, ...]:
        """What is replaced in values."""
        return redactions(self.collector_redact)

    @property
    def scraped(self) -> tuple[str, ...]:
        """The pages of Prometheus metrics to read."""
        return listed(self.collector_scrape)

    @property
    def forward_headers(self) -> dict[str, str]:
        """Return the headers for the other OTLP endpoint."""
        return headers_of(self.forward_otlp_headers)

    @property
    def parquet_tables(self) -> tuple[str, ...]:
        """Return which tables' rows are written as Parquet files."""
        return listed(self.forward_parquet_tables)

    @property
    def spool_directory(self) -> Path:
        """Where received batches wait for the store."""
        return self.data / "spool"
