-- Why: an OpenTelemetry Collector of somebody else's may write into the store itself, in the shape of its own exporter.
-- Undo: DROP the views otel_traces_written and otel_logs_written, then the tables otel_traces_in and otel_logs_in.
-- Locks: nothing; it only makes tables and views that did not exist.

-- The tables keep nothing (engine Null): what is inserted goes through the views into traces, logs and metrics, where
-- the tenant leads the sort key. It is the attribute tollkeeper.tenant.id, of the row or of its resource.
-- The exporter's settings for them are in docs/store.md.

CREATE TABLE IF NOT EXISTS otel_traces_in
(
    Timestamp DateTime64(9),
    TraceId String,
    SpanId String,
    ParentSpanId String,
    TraceState String,
    SpanName LowCardinality(String),
    SpanKind LowCardinality(String),
    ServiceName LowCardinality(String),
    ResourceAttributes Map(LowCardinality(String), String),
    ScopeName String,
    ScopeVersion String,
    SpanAttributes Map(LowCardinality(String), String),
    Duration UInt64,
    StatusCode LowCardinality(String),
    StatusMessage String,
    Events Nested(Timestamp DateTime64(9), Name LowCardinality(String), Attributes Map(LowCardinality(String), String)),
    Links Nested(TraceId String, SpanId String, TraceState String, Attributes Map(LowCardinality(String), String))
)
ENGINE = Null;

CREATE MATERIALIZED VIEW IF NOT EXISTS otel_traces_written TO traces AS
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
        SpanAttributes['tollkeeper.tenant.id'] != '',
        SpanAttributes['tollkeeper.tenant.id'],
        ResourceAttributes['tollkeeper.tenant.id']
    ) AS tenant,
    Timestamp AS started_at,
    Duration AS duration_ns,
    unhex(TraceId) AS trace_id,
    unhex(SpanId) AS span_id,
    unhex(ParentSpanId) AS parent_span_id,
    TraceState AS trace_state,
    SpanName AS name,
    -- 'Server' of today's exporter, 'SPAN_KIND_SERVER' of older ones.
    replaceRegexpOne(lower(SpanKind), '^span_kind_|^unspecified$|^internal_unspecified$', '') AS kind,
    ServiceName AS service,
    kept(ResourceAttributes) AS resource_attributes,
    ScopeName AS scope_name,
    ScopeVersion AS scope_version,
    kept(SpanAttributes) AS attributes,
    replaceOne(lower(StatusCode), 'status_code_', '') AS status,
    StatusMessage AS status_message,
    Events.Timestamp AS event_times,
    Events.Name AS event_names,
    arrayMap(
        -- What a GenAI event says without a namespace is what was said: content, message, tool_calls.
        (event, held) -> kept(mapFilter((name, value) -> NOT startsWith(event, 'gen_ai.') OR position(name, '.') > 0, held)),
        Events.Name,
        Events.Attributes
    ) AS event_attributes,
    arrayMap(id -> unhex(id), Links.TraceId) AS link_trace_ids,
    arrayMap(id -> unhex(id), Links.SpanId) AS link_span_ids,
    Links.TraceState AS link_trace_states,
    arrayMap(held -> kept(held), Links.Attributes) AS link_attributes
FROM otel_traces_in;

CREATE TABLE IF NOT EXISTS otel_logs_in
(
    Timestamp DateTime64(9),
    TimestampTime DateTime DEFAULT toDateTime(Timestamp),
    TraceId String,
    SpanId String,
    TraceFlags UInt8,
    SeverityText LowCardinality(String),
    SeverityNumber UInt8,
    ServiceName LowCardinality(String),
    Body String,
    ResourceSchemaUrl LowCardinality(String),
    ResourceAttributes Map(LowCardinality(String), String),
    ScopeSchemaUrl LowCardinality(String),
    ScopeName String,
    ScopeVersion LowCardinality(String),
    ScopeAttributes Map(LowCardinality(String), String),
    LogAttributes Map(LowCardinality(String), String),
    EventName String
)
ENGINE = Null;

CREATE MATERIALIZED VIEW IF NOT EXISTS otel_logs_written TO logs AS
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
        LogAttributes['tollkeeper.tenant.id'] != '',
        LogAttributes['tollkeeper.tenant.id'],
        ResourceAttributes['tollkeeper.tenant.id']
    ) AS tenant,
    Timestamp AS at,
    Timestamp AS observed_at,
    unhex(TraceId) AS trace_id,
    unhex(SpanId) AS span_id,
    TraceFlags AS trace_flags,
    SeverityText AS severity,
    SeverityNumber AS severity_number,
    ServiceName AS service,
    EventName AS event_name,
    if(startsWith(EventName, 'gen_ai.'), '', substringUTF8(Body, 1, 65536)) AS body,
    kept(mapFilter((name, value) -> NOT startsWith(EventName, 'gen_ai.') OR position(name, '.') > 0, LogAttributes)) AS attributes,
    kept(ResourceAttributes) AS resource_attributes,
    ScopeName AS scope_name,
    ScopeVersion AS scope_version
FROM otel_logs_in;
