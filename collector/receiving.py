"""Builds receivers, the steps before the spool, and the pipeline behind them."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.applications import Starlette

from collector.arrival import ArrivalStep
from collector.counters import Counters
from collector.pipeline import Forwards, Pipeline
from collector.processors.cardinality import CardinalityLimiter
from collector.processors.logs import LogsProcessor
from collector.processors.metrics import MetricsProcessor
from collector.processors.quotas import KnownTenants, TenantQuotas
from collector.processors.record_origin import RecordOrigin
from collector.processors.record_tenants import RecordTenants
from collector.processors.redaction import Redaction
from collector.processors.signal import SignalProcessor
from collector.processors.spans import SpansProcessor
from collector.processors.tail_sampling import SamplingPolicy, TailSampler
from collector.receivers.bodies import InflightBytes
from collector.receivers.memory import MemoryLimiter
from collector.receivers.otlp_grpc import OtlpGrpcReceiver
from collector.receivers.otlp_http import BodyLimits, OtlpHttpReceiver
from collector.receivers.prometheus import PrometheusReceiver
from collector.servers import bind
from collector.settings import CollectorSettings
from collector.spool import Signal, Spool


def make_processors() -> dict[Signal, SignalProcessor[Any]]:
    """Return the processor of each signal."""
    return {"logs": LogsProcessor(), "traces": SpansProcessor(), "metrics": MetricsProcessor()}


def make_pipeline(
    settings: CollectorSettings,
    spool: Spool,
    counters: Counters,
    arrival_steps: Sequence[ArrivalStep] = (),
    forwards: Sequence[Forwards] = (),
) -> Pipeline:
    """Return the pipeline: the steps before the spool, and the processors and steps after it."""
    rows = (
        Redaction(settings.redacted),
        CardinalityLimiter(settings.collector_max_series, settings.collector_max_names),
    )
    return Pipeline(make_processors(), spool, counters, arrival_steps=arrival_steps, row_steps=rows, forwards=forwards)


class Receiving:
    """All receivers, and the pipeline that they use. Raises ConfigurationError if the gRPC port is unusable."""

    def __init__(
        self, settings: CollectorSettings, spool: Spool, counters: Counters, forwards: Sequence[Forwards] = ()
    ) -> None:
        self._sampler = TailSampler(sampling_policy(settings), self._keep_spans, counters)
        quotas = settings.tenant_quotas
        is_limited = bool(settings.tenants or settings.collector_tenant_records_per_second or quotas)
        steps: tuple[ArrivalStep, ...] = (
            RecordOrigin(settings.record_key),
            *([RecordTenants()] if is_limited else []),
            KnownTenants(settings.tenants, counters),
            TenantQuotas(settings.collector_tenant_records_per_second, quotas, counters),
            self._sampler,
        )
        self.pipeline = make_pipeline(settings, spool, counters, steps, forwards)
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="receiver")
        memory = MemoryLimiter(settings.collector_max_memory_bytes)
        inflight = InflightBytes(settings.collector_max_inflight_bytes)
        limits = BodyLimits(
            settings.collector_max_body_bytes,
            settings.collector_max_decompressed_bytes,
            settings.collector_body_timeout_seconds,
        )
        self._http = OtlpHttpReceiver(self.pipeline, counters, limits, inflight, memory, self._executor)
        self._grpc = OtlpGrpcReceiver(
            self.pipeline,
            counters,
            memory,
            inflight,
            bound=bind(settings.host, settings.otlp_grpc_port, "TOLLKEEPER_OTLP_GRPC_PORT"),
            table=settings.bounds().table,
            head_seconds=settings.head_seconds,
            header_bytes=settings.max_header_bytes,
            max_bytes=settings.collector_max_decompressed_bytes,
        )
        self._prometheus = PrometheusReceiver(
            settings.scraped,
            self.pipeline,
            counters,
            every_seconds=settings.collector_scrape_seconds,
        )

    @property
    def grpc_port(self) -> int:
        """Return the port that gRPC listens on."""
        return self._grpc.port

    def http_app(self) -> Starlette:
        """Return the ASGI application of the OTLP/HTTP port."""
        return self._http.app()

    def start(self) -> None:
        """Start gRPC, scraping and sampling. The caller serves the HTTP application."""
        self._sampler.start()
        self._grpc.start()
        self._prometheus.start()

    def stop(self) -> None:
        """Refuse new data, finish requests in progress, and write held spans to the spool. Blocks for some seconds."""
        self._prometheus.stop()
        self._grpc.stop()
        self._executor.shutdown()
        self._sampler.stop()

    def _keep_spans(self, request: Any) -> None:
        self.pipeline.keep("traces", request)


def sampling_policy(settings: CollectorSettings) -> SamplingPolicy:
    """Return the tail sampler's policy."""
    return SamplingPolicy(
        share=settings.collector_sample_share,
        slow_seconds=settings.collector_sample_slow_seconds,
        expensive_usd=settings.collector_sample_expensive_usd,
        wait_seconds=settings.collector_sample_wait_seconds,
        max_bytes=settings.collector_sample_max_bytes,
    )
