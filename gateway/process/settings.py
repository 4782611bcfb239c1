"""Settings of the data plane, from TOLLKEEPER_* variables."""

import hashlib
import platform
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from backends.audit.options import AuditOptions
from backends.channels.inward import NetworksText
from backends.counters.address import CountersAddress, RedisDependencies
from backends.endpoints.kubernetes_watch import KubernetesApi, check_api
from backends.llm.encoding_room import RoomBounds
from backends.network.connection_table import ConnectionLimits
from backends.network.head_limits import HEADER_BYTES, HEADER_COUNT
from backends.network.host_names import HostNames
from backends.network.tls import TlsFiles
from backends.processes.logs import LogSettings
from backends.secrets.credential_references import DEFAULT_VARIABLES, ReferenceRules
from backends.secrets.record_key import RecordKey, record_key
from backends.tool_host.settings import tools_socket_of
from contracts.errors import ConfigurationError
from contracts.objects.files import FileBounds
from contracts.objects.responses import DEFAULT_MAX_BYTES
from contracts.serving.configuration import control_database_url
from gateway.apis.batches.settings import BatchSettings, RunnerSettings
from gateway.identity.authentication import AuthenticationLimits
from gateway.wire.http_limits import HttpLimits
from gateway.wire.listener_context import TlsSettings


def several_need_redis(workers: int) -> str:
    """Return the error message for several workers without shared counters."""
    return (
        f"{workers} workers would each allow the whole of every limit and budget; name a Redis server in "
        "TOLLKEEPER_REDIS_URL for them to count in, or run one worker"
    )


class GatewaySettings(LogSettings):
    """Settings of the data plane's process. Ports are TCP ports, sizes bytes, times seconds."""

    model_config = SettingsConfigDict(env_prefix="TOLLKEEPER_", extra="ignore", frozen=True)

    data: Path = Path(".tollkeeper")
    host: str = "127.0.0.1"
    gateway_port: int = Field(default=8080, ge=0, le=65535)
    compiled: bool = True  # run the hot modules as the compiler made them, where it did
    gateway_name: str = ""  # on every record; empty: host name and port
    region: str = ""  # where this gateway stands, for conditions of routes
    semantic_timeout_ms: int = Field(default=200, ge=1, le=60_000)  # a prompt not read by then goes the default way
    embedder_threads: int = Field(default=1, ge=1, le=64)
    gateway_config: Path | None = None  # a YAML file instead of database and store
    # What references of the control database may name, with commas between; a configuration file's are free.
    credential_variables: str = DEFAULT_VARIABLES  # patterns of environment variables
    credential_directories: str = ""  # empty: /run/secrets, and provider_keys in the data directory
    database_url: str = ""  # empty: SQLite in the data directory
    objects_url: str = ""  # files, batches and kept answers; empty: SQLite in the data directory, beside the other
    responses_keep_days: float = Field(default=30.0, gt=0, le=3650)  # answers of the Responses API that are stored
    responses_max_bytes: int = Field(default=DEFAULT_MAX_BYTES, ge=1 << 20)  # that one tenant keeps of them
    answer_cache_max_bytes: int = Field(default=64 << 20, ge=1 << 20)  # answers that models and routes keep, in memory
    answer_cache_redis_url: str = ""  # where gateways share them besides; empty: each has its own
    answer_cache_tenant_max_bytes: int = Field(default=64 << 20, ge=1 << 20)  # that one tenant keeps there
    guardrails_inward: NetworksText = ""  # networks in which moderation webhooks may be, though they are not public
    collector_url: str = "http://127.0.0.1:4318"  # with gateway_config: used only where it is set
    record_signing_key: RecordKey = None  # none: the secret file `record_signing_key`, which the collector has too
    watched_processes: str = ""  # name=URL of other processes, with commas between them: asked once a second
    tracing: bool = False  # send every request's spans as well
    tracing_max_spans: int = Field(default=20_000, ge=1)  # kept while the collector does not take them

    kubernetes_url: str = ""  # of the API server that targets' endpoints are watched at; empty: as a pod is told
    kubernetes_token_file: Path | None = None  # none: the service account's
    kubernetes_ca: Path | None = None  # PEM: who signs the API server's certificate; none: the service account's

    tools_socket: Path | None = None  # where a tool host listens; none: run/tools.sock
    providers_url: str = ""  # where a provider host listens, unix:///path.sock; empty: run/providers.sock

    engine_client_certificate: Path | None = None  # what engine hosts of other machines are shown: PEM files,
    engine_client_key: Path | None = None  # all three or none
    engine_client_ca: Path | None = None  # who signs theirs
    engine_hung_restart_seconds: float = Field(default=30.0, ge=0)  # a hung host's connection is closed then; 0: never
    kv_events: bool = True  # record engines' KV cache events; they are dropped while the journal is over half full
    routing_sample_share: float = Field(default=0.01, ge=0, le=1)  # requests that record their alternatives

    workers: int = Field(default=1, ge=1, le=256)  # data planes that share the port on this machine
    worker: int = Field(default=1, ge=1, le=256)  # which of them this one is
    redis_url: str = ""  # counters shared by several gateways, e.g. redis://127.0.0.1:6379/0; empty: in this process
    redis_replicas: int | None = None  # that confirm each batch; none: 1 with a cluster or Sentinel, 0 with one server
    redis_ca: Path | None = None  # PEM: who signs the certificates of Redis; none: the system's authorities
    redis_certificate: Path | None = None  # what Redis is shown, with its key; PEM
    redis_key: Path | None = None
    redis_sentinel_user: str = ""  # of the Sentinels, where they ask for one; the URL's are the servers'
    redis_sentinel_password: str = Field(default="", repr=False)

    journal_max_bytes: int = Field(default=1 << 30, ge=1 << 20)
    journal_when_full: Literal["refuse", "drop"] = "refuse"
    max_concurrent: int = Field(default=4096, ge=1)
    content_max_bytes: int = Field(default=256 << 10, ge=1024)  # of a prompt, and of an answer; of tenants that keep it
    content_patterns: Path | None = None  # a file with patterns of one's own; a line each, name = expression
    audit_sink: str = ""  # where finished segments of the audit log go: s3://BUCKET/PREFIX, or a directory
    audit_sink_days: int = Field(default=400, ge=1, le=36_500)  # for how long the bucket locks them
    audit_s3_endpoint: str = ""  # of an S3-compatible store that is not Amazon's
    audit_keep_days: int = Field(default=0, ge=0, le=36_500)  # older segments are cut here; 0: none ever
    stale_keys_seconds: float = Field(default=3600.0, ge=0)
    drain_seconds: float = Field(default=10.0, ge=0)  # for answers under way at a stop
    drain_notice_seconds: float = Field(default=3.0, ge=0)  # at a stop, before the port closes

    files_max_bytes: int = Field(default=10 << 30, ge=1 << 20)  # that one tenant keeps in files
    files_max_count: int = Field(default=10_000, ge=1)
    batch_concurrency: int = Field(default=8, ge=1, le=1024)  # lines of batches served at once

    trusted_proxies: str = ""  # networks, with commas between them
    invalid_keys_per_minute: int = Field(default=30, ge=1, le=1_000_000)
    stale_issuer_keys_seconds: float = Field(default=3600.0, ge=0)

    metrics: bool = True  # GET /metrics, for Prometheus
    metrics_port: int = Field(default=0, ge=0, le=65535)  # 0: the data plane's; the second worker takes the next
    metrics_token: str = Field(default="", repr=False)  # who sends it may read them; empty: the secret file's
    metrics_tenants: int = Field(default=0, ge=0, le=10_000)  # tenants that are counted by name
    metrics_budgets: int = Field(default=20, ge=0, le=1000)  # budgets shown, those most used

    tls_certificate: Path | None = None  # PEM, with its chain; set: the data plane's port speaks TLS alone
    tls_key: Path | None = None
    tls_client_ca: Path | None = None  # PEM: who uses the gateway shows a certificate that one of these signed
    tls_handshake_seconds: float = Field(default=10.0, gt=0)

    max_header_bytes: int = Field(default=HEADER_BYTES, ge=1024)
    max_header_count: int = Field(default=HEADER_COUNT, ge=8)
    max_body_bytes: int = Field(default=32 * 1024 * 1024, ge=1024)
    max_body_fields: int = Field(default=100_000, ge=1000)  # objects, lists and fields of a body over 256 KiB
    max_buffered_bytes: int = Field(default=1 << 30, ge=1 << 20)  # of bodies over 256 KiB, of all connections
    encoding_max_bytes: int = Field(default=32 << 20, ge=1 << 20)  # of such bodies, parsed and encoded at once
    encoding_tenant_max_bytes: int = Field(default=16 << 20, ge=1 << 20)  # of one tenant
    encoding_wait_seconds: float = Field(default=10.0, gt=0)  # for room to be encoded in
    head_seconds: float = Field(default=10.0, gt=0)
    body_seconds: float = Field(default=60.0, gt=0)
    idle_seconds: float = Field(default=75.0, gt=0)
    write_seconds: float = Field(default=60.0, gt=0)
    max_connections: int = Field(default=10_000, ge=1)
    max_connections_per_address: int | None = Field(default=None, ge=1)  # IPv6: of one /64; none: a quarter of all
    allowed_hosts: str = ""  # names, with commas between them, that requests may be addressed to on a loopback address

    @model_validator(mode="after")
    def _counts_once(self) -> Self:
        if self.workers > 1 and not self.redis_url:
            raise ValueError(several_need_redis(self.workers))
        try:
            check_api(self.kubernetes_api)
            addresses = [self.redis_address] if self.redis_url else []
            addresses += [self.answers_address] if self.answer_cache_redis_url else []
            self._redis_means.require_use(addresses)
        except ConfigurationError as error:
            raise ValueError(error.message) from error
        if self.redis_replicas is not None and not self.redis_url:
            raise ValueError("TOLLKEEPER_REDIS_REPLICAS has no use without TOLLKEEPER_REDIS_URL; set both or neither")
        if self.worker > self.workers:
            raise ValueError(f"TOLLKEEPER_WORKER is {self.worker} of TOLLKEEPER_WORKERS {self.workers}")
        return self

    @model_validator(mode="after")
    def _is_secure_or_not(self) -> Self:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("TLS needs both TOLLKEEPER_TLS_CERTIFICATE and TOLLKEEPER_TLS_KEY, or neither")
        if self.tls_client_ca is not None and self.tls_certificate is None:
            raise ValueError("TOLLKEEPER_TLS_CLIENT_CA is of no use without TOLLKEEPER_TLS_CERTIFICATE")
        if 0 < len(self.engine_tls.paths) < 3:
            raise ValueError(
                "TOLLKEEPER_ENGINE_CLIENT_CERTIFICATE, TOLLKEEPER_ENGINE_CLIENT_KEY and TOLLKEEPER_ENGINE_CLIENT_CA go "
                "together: set all three or none"
            )
        return self

    @property
    def name(self) -> str:
        """Return this worker's name, which identifies it in records and shared counters."""
        name = self.gateway_name or f"{platform.node()}:{self.gateway_port}"
        return name if self.worker == 1 else f"{name}#{self.worker}"

    def own(self, folder: str) -> Path:
        """Return the folder of the data directory that only this worker uses."""
        return self.data / (folder if self.worker == 1 else f"{folder}-{self.worker}")

    @property
    def own_metrics_port(self) -> int:
        """Return the port of this worker's metrics; 0 if they are on the data plane's port."""
        return self.metrics_port + self.worker - 1 if self.metrics_port else 0

    @property
    def database_address(self) -> str:
        """Return the control database's URL; SQLite in the data directory if none is set."""
        return control_database_url(self.database_url, self.data)

    @property
    def audit_options(self) -> AuditOptions:
        """Return the options of the audit log."""
        return AuditOptions(self.audit_sink, self.audit_sink_days, self.audit_s3_endpoint, self.audit_keep_days)

    @property
    def tools_address(self) -> Path:
        """Return the address of the tool host."""
        return tools_socket_of(self.tools_socket, self.data)

    @property
    def providers_address(self) -> str:
        """Return the provider host's URL."""
        return self.providers_url or f"unix://{(self.data / 'run' / 'providers.sock').absolute()}"

    @property
    def objects_address(self) -> str:
        """Return the URL of the database of files, batches and stored responses."""
        return self.objects_url or f"sqlite:///{(self.data / 'objects.db').absolute()}"

    @property
    def ships_to(self) -> str:
        """Return the collector's URL, or none if records stay in the journal (a YAML file and no URL set)."""
        if self.gateway_config is not None and "collector_url" not in self.model_fields_set:
            return ""
        return self.collector_url

    @property
    def record_key(self) -> bytes:
        """Return the key that signs records for the collector: the configured one, else the installation's secret."""
        return record_key(self.record_signing_key, self.data)

    @property
    def authentication_limits(self) -> AuthenticationLimits:
        """Return the settings of authentication: trusted proxies, and limits of failures."""
        return AuthenticationLimits(
            trusted_proxies=self.trusted_proxies,
            invalid_keys_per_minute=self.invalid_keys_per_minute,
            stale_issuer_keys_seconds=self.stale_issuer_keys_seconds,
        )

    @property
    def kubernetes_api(self) -> KubernetesApi:
        """Return the Kubernetes API for watching endpoints."""
        return KubernetesApi(self.kubernetes_url, self.kubernetes_token_file, self.kubernetes_ca)

    @property
    def redis_address(self) -> CountersAddress:
        """Return the address of the shared counters. Raises ConfigurationError if the settings cannot be used."""
        return self._redis_means.address(self.redis_url, self.redis_replicas)

    @property
    def answers_address(self) -> CountersAddress:
        """Return the address of the shared response cache. Raises ConfigurationError if the settings cannot be used."""
        return self._redis_means.address(self.answer_cache_redis_url, 0)

    @property
    def _redis_means(self) -> RedisDependencies:
        tls = TlsFiles(self.redis_certificate, self.redis_key, self.redis_ca)
        return RedisDependencies(tls, self.redis_sentinel_user, self.redis_sentinel_password)

    @property
    def tls(self) -> TlsSettings | None:
        """Return the listener's certificates; `None` if it speaks plain HTTP."""
        if self.tls_certificate is None:
            return None
        return TlsSettings(TlsFiles(self.tls_certificate, self.tls_key, self.tls_client_ca), self.tls_handshake_seconds)

    @property
    def batch_settings(self) -> BatchSettings:
        """Return the settings of files and batches."""
        own = hashlib.blake2b(str(self.own("journal").absolute()).encode(), digest_size=16).hexdigest()
        place = f"{self.name[:200]} {own}"  # of two workers never the same, however long the directory's name
        return BatchSettings(
            files=FileBounds(max_bytes=self.files_max_bytes, max_count=self.files_max_count),
            runner=RunnerSettings(place=place, concurrency=self.batch_concurrency),
            is_shared=self.gateway_config is None,
        )

    @property
    def reference_rules(self) -> ReferenceRules | None:
        """Return what references to credentials may name; `None` if all of them are in the operator's own file."""
        if self.gateway_config is not None:
            return None
        return ReferenceRules.of(self.data, self.credential_variables, self.credential_directories)

    @property
    def engine_tls(self) -> TlsFiles:
        """Return the TLS files for engine hosts on other machines. Paths that are not configured are `None`."""
        return TlsFiles(self.engine_client_certificate, self.engine_client_key, self.engine_client_ca)

    @property
    def encoding_bounds(self) -> RoomBounds:
        """Return how many bytes of large bodies are parsed and encoded at once."""
        return RoomBounds(self.encoding_max_bytes, self.encoding_tenant_max_bytes, self.encoding_wait_seconds)

    @property
    def http_limits(self) -> HttpLimits:
        """Return the limits of one connection."""
        return HttpLimits(
            header_bytes=self.max_header_bytes,
            header_count=self.max_header_count,
            body_bytes=self.max_body_bytes,
            buffered_bytes=self.max_buffered_bytes,
            head_seconds=self.head_seconds,
            body_seconds=self.body_seconds,
            idle_seconds=self.idle_seconds,
            write_seconds=self.write_seconds,
            connections=ConnectionLimits.of(
                self.max_connections, self.max_connections_per_address, self.trusted_proxies
            ),
            hosts=None if self.tls_certificate is not None else HostNames.of(self.host, self.allowed_hosts),
        )
