-- Why: as 0016, for points: another OpenTelemetry Collector may write metrics into the store itself.
-- Undo: DROP the views otel_metrics_*_written, then the tables otel_metrics_*_in.
-- Locks: nothing; it only makes tables and views that did not exist.

CREATE TABLE IF NOT EXISTS otel_metrics_gauge_in
(
    ResourceAttributes Map(LowCardinality(String), String),
    ResourceSchemaUrl String,
    ScopeName String,
    ScopeVersion String,
    ScopeAttributes Map(LowCardinality(String), String),
    ScopeDroppedAttrCount UInt32,
    ScopeSchemaUrl String,
    ServiceName LowCardinality(String),
    MetricName LowCardinality(String),
    MetricDescription String,
    MetricUnit String,
    Attributes Map(LowCardinality(String), String),
    StartTimeUnix DateTime64(9),
    TimeUnix DateTime64(9),
    Flags UInt32,
    Value Float64,
    Exemplars Nested(FilteredAttributes Map(LowCardinality(String), String), TimeUnix DateTime64(9), Value Float64, SpanId String, TraceId String)
)
ENGINE = Null;

CREATE MATERIALIZED VIEW IF NOT EXISTS otel_metrics_gauge_written TO metrics AS
WITH
    -- Content is left out and credentials are replaced, as the collector does with what it receives itself.
    (held -> mapApply(
        (name, value) -> (
            name,
            if(match(name, '(?i)(^|[._-])(authorization|(set-)?cookie|x-api-key|api[_-]?key|apikey|password|passwd|secret|client_secret|access_token|refresh_token|private_key|llm\\.headers)$'), '[redacted]', substringUTF8(value, 1, 4096))
        ),
        mapFilter(
            (name, value) -> NOT (
                name IN ('gen_ai.completion', 'gen_ai.event.content',
                    'gen_ai.input.messages', 'gen_ai.output.messages', 'gen_ai.prompt',
                    'gen_ai.system_instructions', 'gen_ai.tool.call.arguments', 'gen_ai.tool.call.result', 'gen_ai.tool.definitions')
                OR match(name, '^(?:(gen_ai\\.(prompt|completion)\\.\\d|traceloop\\.entity\\.(input|output)$|(input|output)\\.value$|llm\\.(prompts?|completions?|input_messages|output_messages|prompt_template\\.variables|tools)(\\.|$)|retrieval\\.documents\\.|message\\.content|ai\\.(prompt|response\\.(text|object|toolCalls)|toolCall\\.(args|result)))|embedding\\.embeddings\\.|reranker\\.(input|output)_documents\\.)')
            ),
            held
        )
    )) AS kept
SELECT
    if(
        Attributes['tollkeeper.tenant.id'] != '',
        Attributes['tollkeeper.tenant.id'],
        ResourceAttributes['tollkeeper.tenant.id']
    ) AS tenant,
    MetricName AS name,
    'gauge' AS kind,
    MetricUnit AS unit,
    MetricDescription AS description,
    ServiceName AS service,
    kept(Attributes) AS attributes,
    kept(ResourceAttributes) AS resource_attributes,
    ScopeName AS scope_name,
    ScopeVersion AS scope_version,
    StartTimeUnix AS started_at,
    TimeUnix AS at,
    Value AS value
FROM otel_metrics_gauge_in;

CREATE TABLE IF NOT EXISTS otel_metrics_sum_in
(
    ResourceAttributes Map(LowCardinality(String), String),
    ResourceSchemaUrl String,
    ScopeName String,
    ScopeVersion String,
    ScopeAttributes Map(LowCardinality(String), String),
    ScopeDroppedAttrCount UInt32,
    ScopeSchemaUrl String,
    ServiceName LowCardinality(String),
    MetricName LowCardinality(String),
    MetricDescription String,
    MetricUnit String,
    Attributes Map(LowCardinality(String), String),
    StartTimeUnix DateTime64(9),
    TimeUnix DateTime64(9),
    Flags UInt32,
    Value Float64,
    AggregationTemporality Int32,
    IsMonotonic Bool,
    Exemplars Nested(FilteredAttributes Map(LowCardinality(String), String), TimeUnix DateTime64(9), Value Float64, SpanId String, TraceId String)
)
ENGINE = Null;

CREATE MATERIALIZED VIEW IF NOT EXISTS otel_metrics_sum_written TO metrics AS
WITH
    -- Content is left out and credentials are replaced, as the collector does with what it receives itself.
    (held -> mapApply(
        (name, value) -> (
            name,
            if(match(name, '(?i)(^|[._-])(authorization|(set-)?cookie|x-api-key|api[_-]?key|apikey|password|passwd|secret|client_secret|access_token|refresh_token|private_key|llm\\.headers)$'), '[redacted]', substringUTF8(value, 1, 4096))
        ),
        mapFilter(
            (name, value) -> NOT (
                name IN ('gen_ai.completion', 'gen_ai.event.content',
                    'gen_ai.input.messages', 'gen_ai.output.messages', 'gen_ai.prompt',
                    'gen_ai.system_instructions', 'gen_ai.tool.call.arguments', 'gen_ai.tool.call.result', 'gen_ai.tool.definitions')
                OR match(name, '^(?:(gen_ai\\.(prompt|completion)\\.\\d|traceloop\\.entity\\.(input|output)$|(input|output)\\.value$|llm\\.(prompts?|completions?|input_messages|output_messages|prompt_template\\.variables|tools)(\\.|$)|retrieval\\.documents\\.|message\\.content|ai\\.(prompt|response\\.(text|object|toolCalls)|toolCall\\.(args|result)))|embedding\\.embeddings\\.|reranker\\.(input|output)_documents\\.)')
            ),
            held
        )
    )) AS kept
SELECT
    if(
        Attributes['tollkeeper.tenant.id'] != '',
        Attributes['tollkeeper.tenant.id'],
        ResourceAttributes['tollkeeper.tenant.id']
    ) AS tenant,
    MetricName AS name,
    'sum' AS kind,
    MetricUnit AS unit,
    MetricDescription AS description,
    ServiceName AS service,
    kept(Attributes) AS attributes,
    kept(ResourceAttributes) AS resource_attributes,
    ScopeName AS scope_name,
    ScopeVersion AS scope_version,
    StartTimeUnix AS started_at,
    TimeUnix AS at,
    Value AS value,
    IsMonotonic AS is_monotonic,
    ['delta', 'cumulative'][AggregationTemporality] AS temporality
FROM otel_metrics_sum_in;

CREATE TABLE IF NOT EXISTS otel_metrics_histogram_in
(
    ResourceAttributes Map(LowCardinality(String), String),
    ResourceSchemaUrl String,
    ScopeName String,
    ScopeVersion String,
    ScopeAttributes Map(LowCardinality(String), String),
    ScopeDroppedAttrCount UInt32,
    ScopeSchemaUrl String,
    ServiceName LowCardinality(String),
    MetricName LowCardinality(String),
    MetricDescription String,
    MetricUnit String,
    Attributes Map(LowCardinality(String), String),
    StartTimeUnix DateTime64(9),
    TimeUnix DateTime64(9),
    Flags UInt32,
    Count UInt64,
    Sum Float64,
    BucketCounts Array(UInt64),
    ExplicitBounds Array(Float64),
    Min Float64,
    Max Float64,
    AggregationTemporality Int32,
    Exemplars Nested(FilteredAttributes Map(LowCardinality(String), String), TimeUnix DateTime64(9), Value Float64, SpanId String, TraceId String)
)
ENGINE = Null;

CREATE MATERIALIZED VIEW IF NOT EXISTS otel_metrics_histogram_written TO metrics AS
WITH
    -- Content is left out and credentials are replaced, as the collector does with what it receives itself.
    (held -> mapApply(
        (name, value) -> (
            name,
            if(match(name, '(?i)(^|[._-])(authorization|(set-)?cookie|x-api-key|api[_-]?key|apikey|password|passwd|secret|client_secret|access_token|refresh_token|private_key|llm\\.headers)$'), '[redacted]', substringUTF8(value, 1, 4096))
        ),
        mapFilter(
            (name, value) -> NOT (
                name IN ('gen_ai.completion', 'gen_ai.event.content',
                    'gen_ai.input.messages', 'gen_ai.output.messages', 'gen_ai.prompt',
                    'gen_ai.system_instructions', 'gen_ai.tool.call.arguments', 'gen_ai.tool.call.result', 'gen_ai.tool.definitions')
                OR match(name, '^(?:(gen_ai\\.(prompt|completion)\\.\\d|traceloop\\.entity\\.(input|output)$|(input|output)\\.value$|llm\\.(prompts?|completions?|input_messages|output_messages|prompt_template\\.variables|tools)(\\.|$)|retrieval\\.documents\\.|message\\.content|ai\\.(prompt|response\\.(text|object|toolCalls)|toolCall\\.(args|result)))|embedding\\.embeddings\\.|reranker\\.(input|output)_documents\\.)')
            ),
            held
        )
    )) AS kept
SELECT
    if(
        Attributes['tollkeeper.tenant.id'] != '',
        Attributes['tollkeeper.tenant.id'],
        ResourceAttributes['tollkeeper.tenant.id']
    ) AS tenant,
    MetricName AS name,
    'histogram' AS kind,
    MetricUnit AS unit,
    MetricDescription AS description,
    ServiceName AS service,
    kept(Attributes) AS attributes,
    kept(ResourceAttributes) AS resource_attributes,
    ScopeName AS scope_name,
    ScopeVersion AS scope_version,
    StartTimeUnix AS started_at,
    TimeUnix AS at,
    ['delta', 'cumulative'][AggregationTemporality] AS temporality,
    Count AS count,
    Sum AS sum,
    -- The exporter writes 0 where neither was reported.
    if(Min = 0 AND Max = 0 AND Sum != 0, NULL, Min) AS min,
    if(Min = 0 AND Max = 0 AND Sum != 0, NULL, Max) AS max,
    BucketCounts AS bucket_counts,
    ExplicitBounds AS bucket_bounds
FROM otel_metrics_histogram_in;

CREATE TABLE IF NOT EXISTS otel_metrics_exponential_histogram_in
(
    ResourceAttributes Map(LowCardinality(String), String),
    ResourceSchemaUrl String,
    ScopeName String,
    ScopeVersion String,
    ScopeAttributes Map(LowCardinality(String), String),
    ScopeDroppedAttrCount UInt32,
    ScopeSchemaUrl String,
    ServiceName LowCardinality(String),
    MetricName LowCardinality(String),
    MetricDescription String,
    MetricUnit String,
    Attributes Map(LowCardinality(String), String),
    StartTimeUnix DateTime64(9),
    TimeUnix DateTime64(9),
    Flags UInt32,
    Count UInt64,
    Sum Float64,
    Scale Int32,
    ZeroCount UInt64,
    PositiveOffset Int32,
    PositiveBucketCounts Array(UInt64),
    NegativeOffset Int32,
    NegativeBucketCounts Array(UInt64),
    Min Float64,
    Max Float64,
    AggregationTemporality Int32,
    Exemplars Nested(FilteredAttributes Map(LowCardinality(String), String), TimeUnix DateTime64(9), Value Float64, SpanId String, TraceId String)
)
ENGINE = Null;

CREATE MATERIALIZED VIEW IF NOT EXISTS otel_metrics_exponential_histogram_written TO metrics AS
WITH
    -- Content is left out and credentials are replaced, as the collector does with what it receives itself.
    (held -> mapApply(
        (name, value) -> (
            name,
            if(match(name, '(?i)(^|[._-])(authorization|(set-)?cookie|x-api-key|api[_-]?key|apikey|password|passwd|secret|client_secret|access_token|refresh_token|private_key|llm\\.headers)$'), '[redacted]', substringUTF8(value, 1, 4096))
        ),
        mapFilter(
            (name, value) -> NOT (
                name IN ('gen_ai.completion', 'gen_ai.event.content',
                    'gen_ai.input.messages', 'gen_ai.output.messages', 'gen_ai.prompt',
                    'gen_ai.system_instructions', 'gen_ai.tool.call.arguments', 'gen_ai.tool.call.result', 'gen_ai.tool.definitions')
                OR match(name, '^(?:(gen_ai\\.(prompt|completion)\\.\\d|traceloop\\.entity\\.(input|output)$|(input|output)\\.value$|llm\\.(prompts?|completions?|input_messages|output_messages|prompt_template\\.variables|tools)(\\.|$)|retrieval\\.documents\\.|message\\.content|ai\\.(prompt|response\\.(text|object|toolCalls)|toolCall\\.(args|result)))|embedding\\.embeddings\\.|reranker\\.(input|output)_documents\\.)')
            ),
            held
        )
    )) AS kept
SELECT
    if(
        Attributes['tollkeeper.tenant.id'] != '',
        Attributes['tollkeeper.tenant.id'],
        ResourceAttributes['tollkeeper.tenant.id']
    ) AS tenant,
    MetricName AS name,
    'exponential_histogram' AS kind,
    MetricUnit AS unit,
    MetricDescription AS description,
    ServiceName AS service,
    kept(Attributes) AS attributes,
    kept(ResourceAttributes) AS resource_attributes,
    ScopeName AS scope_name,
    ScopeVersion AS scope_version,
    StartTimeUnix AS started_at,
    TimeUnix AS at,
    ['delta', 'cumulative'][AggregationTemporality] AS temporality,
    Count AS count,
    Sum AS sum,
    -- The exporter writes 0 where neither was reported.
    if(Min = 0 AND Max = 0 AND Sum != 0, NULL, Min) AS min,
    if(Min = 0 AND Max = 0 AND Sum != 0, NULL, Max) AS max,
    Scale AS scale,
    ZeroCount AS zero_count,
    PositiveOffset AS positive_offset,
    PositiveBucketCounts AS positive_counts,
    NegativeOffset AS negative_offset,
    NegativeBucketCounts AS negative_counts
FROM otel_metrics_exponential_histogram_in;

CREATE TABLE IF NOT EXISTS otel_metrics_summary_in
(
    ResourceAttributes Map(LowCardinality(String), String),
    ResourceSchemaUrl String,
    ScopeName String,
    ScopeVersion String,
    ScopeAttributes Map(LowCardinality(String), String),
    ScopeDroppedAttrCount UInt32,
    ScopeSchemaUrl String,
    ServiceName LowCardinality(String),
    MetricName LowCardinality(String),
    MetricDescription String,
    MetricUnit String,
    Attributes Map(LowCardinality(String), String),
    StartTimeUnix DateTime64(9),
    TimeUnix DateTime64(9),
    Flags UInt32,
    Count UInt64,
    Sum Float64,
    ValueAtQuantiles Nested(Quantile Float64, Value Float64)
)
ENGINE = Null;

CREATE MATERIALIZED VIEW IF NOT EXISTS otel_metrics_summary_written TO metrics AS
WITH
    -- Content is left out and credentials are replaced, as the collector does with what it receives itself.
    (held -> mapApply(
        (name, value) -> (
            name,
            if(match(name, '(?i)(^|[._-])(authorization|(set-)?cookie|x-api-key|api[_-]?key|apikey|password|passwd|secret|client_secret|access_token|refresh_token|private_key|llm\\.headers)$'), '[redacted]', substringUTF8(value, 1, 4096))
        ),
        mapFilter(
            (name, value) -> NOT (
                name IN ('gen_ai.completion', 'gen_ai.event.content',
                    'gen_ai.input.messages', 'gen_ai.output.messages', 'gen_ai.prompt',
                    'gen_ai.system_instructions', 'gen_ai.tool.call.arguments', 'gen_ai.tool.call.result', 'gen_ai.tool.definitions')
                OR match(name, '^(?:(gen_ai\\.(prompt|completion)\\.\\d|traceloop\\.entity\\.(input|output)$|(input|output)\\.value$|llm\\.(prompts?|completions?|input_messages|output_messages|prompt_template\\.variables|tools)(\\.|$)|retrieval\\.documents\\.|message\\.content|ai\\.(prompt|response\\.(text|object|toolCalls)|toolCall\\.(args|result)))|embedding\\.embeddings\\.|reranker\\.(input|output)_documents\\.)')
            ),
            held
        )
    )) AS kept
SELECT
    if(
        Attributes['tollkeeper.tenant.id'] != '',
        Attributes['tollkeeper.tenant.id'],
        ResourceAttributes['tollkeeper.tenant.id']
    ) AS tenant,
    MetricName AS name,
    'summary' AS kind,
    MetricUnit AS unit,
    MetricDescription AS description,
    ServiceName AS service,
    kept(Attributes) AS attributes,
    kept(ResourceAttributes) AS resource_attributes,
    ScopeName AS scope_name,
    ScopeVersion AS scope_version,
    StartTimeUnix AS started_at,
    TimeUnix AS at,
    Count AS count,
    Sum AS sum,
    ValueAtQuantiles.Quantile AS quantiles,
    ValueAtQuantiles.Value AS quantile_values
FROM otel_metrics_summary_in;
