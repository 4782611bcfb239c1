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
    """Parse comma-separated `tenant=records per second`. Raises ValueError."""
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
    """Parse comma-separated kinds of text to redact. Raises ValueError for an unknown kind."""
    known = {str(name): name for name in PATTERNS}
    if unknown := [part for part in listed(text) if part not in known]:
        raise ValueError(f"{unknown[0]!r} is not one of {', '.join(known)}")
    return tuple(known[part] for part in listed(text))


def headers_of(text: SecretStr) -> dict[str, str]:
    """Parse comma-separated `name=value` headers. Raises ValueError, whose text does not quote the secret values."""
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
    """Settings of the collector. Sizes are in bytes."""

    data: Path = Path(".tollkeeper")
    collector_port: Port = 4318
    otlp_grpc_port: Port = 4317
    collector_health_port: Port = 13133

    record_signing_key: RecordKey = None  # default: the secret file `record_signing_key`, which gateways share

    store_url: str = "http://127.0.0.1:8123"
    store_database: str = "tollkeeper"
    store_user: str | None = None  # default, if there is no password either: user "writer", secret file `store_writer`
    store_password: SecretStr | None = None

    spool_max_bytes: Bytes = 4096 * _MIB
    spool_retain_bytes: Annotated[int, Field(ge=0)] = 64 * _MIB  # kept after export, to recognise retried batches
    spool_fsync: Fsync = "never"  # "always" also survives a power cut
    dead_letter_max_bytes: Bytes = 64 * _MIB

    collector_max_body_bytes: Bytes = 32 * _MIB  # as sent
    collector_max_decompressed_bytes: Bytes = 64 * _MIB
    collector_max_inflight_bytes: Bytes = 128 * _MIB  # total of bodies being received
    collector_body_timeout_seconds: Annotated[float, Field(gt=0)] = 30.0
    collector_max_memory_bytes: Bytes = 768 * _MIB  # resident memory; beyond it, requests are refused and senders retry

    # For third-party telemetry; gateways' packed records are never refused, limited or sampled.
    collector_tenants: str = ""  # allowed tenants, comma-separated; empty: all
    collector_tenant_records_per_second: NotNegative = 0.0  # per tenant, averaged over ten seconds; 0: no limit
    collector_tenant_quotas: Quotas = ""  # the same for single tenants, such as "acme=5000,globex=100"
    collector_redact: Redacted = "keys"  # kinds of text to redact: "keys", "emails", comma-separated
    collector_max_series: Bound = 2000  # per hour and (tenant, service, metric)
    collector_max_names: Bound = 2000  # per hour and (tenant, service): names of spans, of metrics, of events
    # Share of ordinary traces to store; 1: no sampling
    collector_sample_share: Annotated[float, Field(ge=0, le=1)] = 1.0
    collector_sample_slow_seconds: NotNegative = 10.0  # a trace with a span this long is stored
    collector_sample_expensive_usd: NotNegative = 0.1  # ... or one of this cost
    collector_sample_wait_seconds: NotNegative = 10.0  # from a trace's first span to the decision
    collector_sample_max_bytes: Bytes = 64 * _MIB  # of undecided spans; beyond it, the oldest traces are decided early
    forward_otlp: str = ""  # base URL of another OTLP endpoint to forward to; empty: none
    forward_otlp_headers: Headers = SecretStr("")  # headers for it, such as "authorization=Bearer X", comma-separated
    forward_nats: str = ""  # URL of a NATS server with JetStream to forward to; empty: none
    forward_nats_subject: str = "tollkeeper"  # prefix of its subjects; ".logs", ".traces" or ".metrics" follows
    forward_parquet: str = ""  # directory, or s3://BUCKET/PREFIX?region=R, for rows as Parquet files; empty: none
    forward_parquet_tables: str = "requests,attempts,engine_steps,gpu_samples"  # tables to write, comma-separated
    forward_parquet_seconds: Annotated[float, Field(gt=0)] = 300.0  # batches of this period are written together
    forward_prompts: bool = False  # whether to forward prompts in third-party telemetry
    forward_max_bytes: Bytes = 1024 * _MIB  # queued per destination; beyond it, further batches are not forwarded
    collector_scrape: str = ""  # URLs of Prometheus pages, comma-separated
    collector_scrape_seconds: Annotated[float, Field(gt=0)] = 15.0

    @property
    def record_key(self) -> bytes:
        """Return the key of gateways' record signatures: the setting, else the installation's secret."""
        return record_key(self.record_signing_key, self.data)

    @property
    def tenants(self) -> tuple[str, ...]:
        """Return the tenants allowed in third-party telemetry; empty: all."""
        return listed(self.collector_tenants)

    @property
    def tenant_quotas(self) -> dict[str, float]:
        """Return the records per second of tenants with their own quota."""
        return quotas_of(self.collector_tenant_quotas)

    @property
    def redacted(self) -> tuple[What, ...]:
        """Return the kinds of text to redact in values."""
        return redactions(self.collector_redact)

    @property
    def scraped(self) -> tuple[str, ...]:
        """Return the URLs of Prometheus pages to scrape."""
        return listed(self.collector_scrape)

    @property
    def forward_headers(self) -> dict[str, str]:
        """Return the headers for the other OTLP endpoint."""
        return headers_of(self.forward_otlp_headers)

    @property
    def parquet_tables(self) -> tuple[str, ...]:
        """Return the tables whose rows are written as Parquet files."""
        return listed(self.forward_parquet_tables)

    @property
    def spool_directory(self) -> Path:
        """Return the directory of the spool."""
        return self.data / "spool"
