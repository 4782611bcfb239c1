"""Resources of serving: pools, targets, models, routes, rollouts, playbooks."""

from typing import Final

from contracts.serving.pool_choices import POLICY_NAMES, TARGET_KINDS
from tollkeeper.resources.resource import Column, Field, Resource, Row, active, moment, of, shown
from tollkeeper.resources.shared import POOL, rules_file, word

LEARNING: Final = (
    "The gateway is still learning its example prompts. Until then the default answers, with the response header "
    "x-tollkeeper-route-state: learning."
)


def _semantic_hint(route: Row) -> str:
    if not route["rules"].get("semantic"):
        return ""
    return f"{LEARNING} `tollkeeper routes show {route['id']}` shows when it is ready."


POOLS: Final = Resource(
    name="pools",
    noun="pool",
    about="Groups of interchangeable targets that serve models.",
    path="/v1/pools",
    fields=(
        Field(
            "policy",
            "How a target is chosen (default cost: the lowest predicted time, not price).",
            choices=POLICY_NAMES,
        ),
        Field("region", "Region of its targets, such as eu-central; routes can be pinned to it."),
        Field("queue", "Queue settings as YAML or @FILE, such as '{max_in_flight: 32}'.", "json", verbs=("set",)),
        Field("failures", "Failure settings as YAML or @FILE, such as '{retries: 2}'.", "json", verbs=("set",)),
    ),
    columns=(of("id"), of("policy"), of("region"), of("queue"), of("failures"), moment()),
    examples=(
        "tollkeeper pools create small --policy least_outstanding",
        "tollkeeper pools list",
        "tollkeeper pools show small",
        "tollkeeper pools set small --queue '{max_in_flight: 32}'",
        "tollkeeper pools delete small",
    ),
    help={"delete": "Delete a pool and its targets. Refused while it serves a model."},
    next="tollkeeper targets create NAME --pool {key} --kind openai_http --url URL",
)


TARGETS: Final = Resource(
    name="targets",
    noun="target",
    about="Servers that pools send requests to: engine hosts, OpenAI-compatible servers, hosted providers.",
    path="/v1/pools/{pool}/targets",
    parents=(POOL,),
    fields=(
        Field(
            "kind",
            "Kind of target.",
            choices=TARGET_KINDS,
            is_required=True,
            verbs=("create",),
        ),
        Field("kind", "Kind of target.", choices=TARGET_KINDS, verbs=("set",)),
        Field("url", "Base URL, with /v1; for an engine host unix:///PATH.sock."),
        Field("model", "Model name at the target (default: the name that applications use)."),
        Field("provider", "Provider, such as openai; for prices and playbooks."),
        Field("key_ref", "Reference to its key: env:NAME, file:/PATH or stored:NAME.", flag="--key-ref"),
        Field("weight", "Share relative to other targets, 1 to 1000 (default 1).", "whole"),
        Field("settings", "Further settings of its kind, as YAML or @FILE.", "json"),
    ),
    columns=(
        of("id"),
        of("pool_id"),
        of("kind"),
        of("url"),
        of("model"),
        of("provider"),
        of("key_ref", "key"),
        of("weight"),
    ),
    examples=(
        "tollkeeper targets create gpu-1 --pool small --kind openai_http --url http://10.0.0.5:8000/v1",
        "tollkeeper targets list --pool small",
        "tollkeeper targets show gpu-1",
        "tollkeeper targets set gpu-1 --weight 2",
        "tollkeeper targets delete gpu-1 --pool small",
    ),
    help={"delete": "Remove a target from its pool. Refused for the last target of a pool that serves a model."},
)


MODELS: Final = Resource(
    name="models",
    noun="model",
    about="Names that applications ask for, and the pools that serve them.",
    path="/v1/models",
    key_help="Name that applications ask for.",
    fields=(
        Field("pool", "Pool that serves it. The pool must have a target.", is_required=True, verbs=("create",)),
        Field("pool", "Pool that serves it.", verbs=("set",)),
        Field("description", "Description."),
        Field("context_tokens", "Context length in tokens (default: the target's own).", "whole"),
        Field("defaults", "Sampling defaults as YAML or @FILE, such as '{temperature: 0.2}'.", "json"),
        Field("pinned", "Sampling values that callers cannot change, as YAML or @FILE.", "json"),
        Field("cache", "Response cache settings as YAML or @FILE, such as '{ttl_seconds: 600}'.", "json"),
        Field("is_active", "Offer it to applications, or withdraw it.", "flag", "--active/--inactive", verbs=("set",)),
    ),
    columns=(of("id"), of("pool_id"), of("context_tokens", "context"), active(), of("description"), moment()),
    examples=(
        "tollkeeper models create assistant --pool small --context-tokens 32768",
        "tollkeeper models list",
        "tollkeeper models show assistant",
        "tollkeeper models set assistant --defaults '{temperature: 0.2}'",
        "tollkeeper models delete assistant",
    ),
    next="tollkeeper prices create {key}/1 --model {key} --price input_text=0.15 --price output_text=0.60",
)


ROUTES: Final = Resource(
    name="routes",
    noun="route",
    about="Names for several models; weights and conditions select one for each request.",
    path="/v1/routes",
    key_help="Name that applications ask for.",
    fields=(
        rules_file("route", "choose: [{model: NAME}]"),
        Field("is_active", "Offer it to applications, or withdraw it.", "flag", "--active/--inactive", verbs=("set",)),
    ),
    columns=(of("id"), active(), Column("leads to", word("leads_to"))),
    examples=(
        "tollkeeper routes create assistant assistant.yaml",
        "tollkeeper routes list",
        "tollkeeper routes show assistant",
        "tollkeeper routes set assistant assistant.yaml",
        "tollkeeper routes delete assistant",
    ),
    is_upsert=True,
    described=word("leads_to"),
    hint=_semantic_hint,
    help={
        "set": "Create a route, or replace its rules. Gateways apply them within a second.",
        "delete": "Delete a route; its models stay.",
    },
    module="tollkeeper.routes",
)


ROLLOUTS: Final = Resource(
    name="rollouts",
    noun="rollout",
    about="Candidate models that take a growing share of a route.",
    path="/v1/rollouts",
    fields=(
        Field("route", "Route that applications ask for.", is_required=True, verbs=("create",)),
        Field("incumbent", "Model that answers there now.", is_required=True, verbs=("create",)),
        Field("candidate", "Model to try.", is_required=True, verbs=("create",)),
        Field(
            "rules",
            "YAML or JSON file with steps, guards, shadow, tenants (default: 1, 5, 25, 100 %).",
            "file",
            verbs=("create",),
        ),
    ),
    columns=(
        of("id"),
        of("route"),
        of("incumbent"),
        of("candidate"),
        of("state"),
        of("percent"),
        of("reason"),
    ),
    examples=(
        "tollkeeper rollouts create v2 --route assistant --incumbent small --candidate large",
        "tollkeeper rollouts list",
        "tollkeeper rollouts show v2",
        "tollkeeper rollouts delete v2",
    ),
    verbs=("create", "list", "show", "delete"),
    help={
        "create": "Start a rollout with its first step. Gateways apply it within a second.",
        "delete": "Delete a rollout that has ended; its records stay.",
    },
    described=word("rollout_line"),
    aliases=("rollout",),
    module="tollkeeper.rollout",
)


PLAYBOOKS: Final = Resource(
    name="playbooks",
    noun="playbook",
    about="What happens while a whole provider is down.",
    path="/v1/playbooks",
    key="provider",
    key_help="Provider, as targets name it.",
    fields=(
        Field("rules.then", "Provider that answers instead, best first; repeat for more.", "list", "--then"),
        Field(
            "rules.outage",
            "When the provider counts as down and as recovered: circuit breaker settings, as YAML or @FILE.",
            "json",
            "--outage",
        ),
    ),
    columns=(of("provider"), Column("then", lambda row: shown(row["rules"].get("then"))), moment()),
    examples=(
        "tollkeeper playbooks create openai --then azure",
        "tollkeeper playbooks list",
        "tollkeeper playbooks show openai",
        "tollkeeper playbooks set openai --then azure --then anthropic",
        "tollkeeper playbooks delete openai",
    ),
    body=lambda body, stored: body if stored else {"provider": body["provider"], **body.get("rules", {})},
)
