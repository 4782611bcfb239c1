"""The planner's form: workload, replicas, hypothetical changes, and objectives."""

import shlex
from dataclasses import replace
from decimal import Decimal
from typing import Final

import streamlit as st

from analytics.planner.hardware import GPUS, WEIGHT_BYTES
from analytics.planner.question import GeneratedRequests, PlanJob, WhatIf
from contracts.errors import InvalidRequest
from contracts.serving.pool_choices import POLICY_NAMES
from dashboard.panels import panel
from dashboard.visit import Visit

_RECORDED: Final = "Recorded traffic"
_MADE: Final = "Generated requests"
_SAME: Final = "unchanged"


def asked_for(visit: Visit) -> PlanJob:
    """Draw the form and return the simulation that it describes. Raises InvalidRequest for an invalid price."""
    hours, model, made = _workload(visit)
    with panel("Replicas", help="The pool that serves the requests now."):
        left, right = st.columns(2)
        replicas = left.number_input("Replicas", 1, 1024, 1, key="plan_replicas", help="Number of replicas")
        policy = right.selectbox("Policy", POLICY_NAMES, key="plan_policy", help="How the router chooses between them")
        price = left.text_input("USD per GPU-hour", key="plan_price", placeholder="unknown", help="Of each GPU")
        blocks = right.number_input(
            "KV blocks", 1, None, None, key="plan_blocks", placeholder="as measured", help="KV cache size"
        )
        setup = st.text_area(
            "Description of a replica (JSON)",
            key="plan_setup",
            height=90,
            placeholder="Empty: fitted to the steps that engines measured in the hours above",
            help="As `tollkeeper plan --json` prints it under `replica`",
        )
    changes = _changes(visit)
    with panel("Objective", help="Finds the fewest replicas that meet these bounds, with the changes above."):
        left, right = st.columns(2)
        ttft = left.number_input(
            "TTFT p95, ms", 0.001, None, None, key="plan_ttft", placeholder="none", help="Time to first token"
        )
        gap = right.number_input(
            "Inter-token p95, ms", 0.001, None, None, key="plan_gap", placeholder="none", help="Inter-token latency"
        )
    what_if = replace(
        changes,
        replicas=int(replicas),
        policy=str(policy),
        usd_per_gpu_hour=_price(price),
        kv_blocks=None if blocks is None else int(blocks),
        ttft_p95_ms=ttft,
        gap_p95_ms=gap,
    )
    return PlanJob(what_if=what_if, hours=hours, model=model, made=made, setup=setup)


def _workload(visit: Visit) -> tuple[float, str, GeneratedRequests | None]:
    with panel("Workload", help="The requests to simulate."):
        kind = st.segmented_control(
            "Workload", (_RECORDED, _MADE), default=_RECORDED, key="plan_kind", required=True,
            label_visibility="collapsed",
        )  # fmt: skip
        left, right = st.columns(2)
        hours = left.number_input(
            "Hours",
            0.01,
            720.0,
            1.0,
            key="plan_hours",
            help="Look-back window in hours, for recorded requests and measured steps",
        )
        model = right.selectbox(
            "Model", ["", *visit.choices("model")], key="plan_model", format_func=lambda name: name or "All models",
            help="Only this model's requests and measured steps",
        )  # fmt: skip
        if kind == _RECORDED:
            return hours, model, None
        return hours, model, GeneratedRequests(
            requests=int(left.number_input("Requests", 1, 5_000_000, 1000, key="plan_made")),
            per_second=right.number_input("Requests per second", 0.0001, None, 1.0, key="plan_rate"),
            input_tokens=left.number_input("Mean prompt, tokens", 1.0, None, 512.0, key="plan_input"),
            output_tokens=right.number_input("Mean answer, tokens", 1.0, None, 128.0, key="plan_output"),
        )  # fmt: skip


def _changes(visit: Visit) -> WhatIf:
    with panel("What if", help="Changes to simulate; the defaults change nothing."):
        left, right = st.columns(2)
        traffic = left.number_input(
            "Traffic multiplier", 0.01, 1000.0, 1.0, key="plan_traffic", help="Requests per second"
        )
        spot = right.number_input(
            "On spot machines, %", 0, 100, None, key="plan_spot", placeholder="none", help="Assumed 60 % cheaper, "
            "and interrupted every 20 hours for 3 minutes",
        )  # fmt: skip
        without = st.multiselect(
            "Without tenants", visit.choices("tenant"), key="plan_without", help="Remove these tenants' requests"
        )
        with st.expander("Other hardware or step sizes"):
            left, right = st.columns(2)
            names = ["", *GPUS]
            gpu = left.selectbox("Measured on GPU", names, key="plan_gpu", format_func=lambda name: name or "not set")
            to_gpu = right.selectbox(
                "Simulate on GPU", names, key="plan_to_gpu", format_func=lambda name: name or _SAME
            )
            weights = left.selectbox(
                "Precision of weights", ["", *WEIGHT_BYTES], key="plan_weights", format_func=lambda name: name or _SAME
            )
            chunk = right.number_input("Tokens per step", 1, None, None, key="plan_chunk", placeholder=_SAME)
            parameters = left.number_input(
                "Parameters, billions", 0.001, None, None, key="plan_parameters", placeholder="not set",
                help="With KV bytes per token: computes how much cache fits beside the weights",
            )  # fmt: skip
            kv_bytes = right.number_input(
                "KV bytes per token", 1.0, None, None, key="plan_kv_bytes", placeholder="not set",
                help="KV cache bytes per token, all layers",
            )  # fmt: skip
            to_price = left.text_input("USD per hour of that GPU", key="plan_to_price", placeholder=_SAME)
    return WhatIf(
        traffic=traffic,
        spot_share=None if spot is None else spot / 100,
        without=tuple(without),
        gpu=gpu,
        to_gpu=to_gpu,
        quantization=weights,
        chunk_tokens=None if chunk is None else int(chunk),
        parameters_billions=parameters,
        kv_token_bytes=kv_bytes,
        to_usd_per_gpu_hour=_price(to_price),
    )


def command_of(job: PlanJob) -> str:
    """Return the `tollkeeper plan` command that runs the same simulation."""
    asked, default = job.what_if, WhatIf()
    words = ["tollkeeper plan"]
    if job.made is not None:
        made = job.made
        words.append(f"--generate {made.requests} --rate {_word(made.per_second)}")
        words.append(f"--input-tokens {_word(made.input_tokens)} --output-tokens {_word(made.output_tokens)}")
    words.append(f"--hours {_word(job.hours)}")
    words += [f"--model {_word(job.model)}"] if job.model else []
    words += ["--setup replica.json"] if job.setup.strip() else []
    words += [f"--without {_word(tenant)}" for tenant in asked.without]
    for name in WhatIf.__slots__:
        value = getattr(asked, name)
        if name != "without" and value != getattr(default, name):
            option = _OPTIONS.get(name, name.replace("_", "-"))
            words.append(f"--{option} {_word(value)}")
    return " ".join(words)


def _word(value: object) -> str:
    """Return a value quoted for a shell; numbers with all digits, so that the simulation is the same."""
    return repr(value).removesuffix(".0") if isinstance(value, float) else shlex.quote(str(value))


# Fields whose command-line option has another name.
_OPTIONS: Final = {"parameters_billions": "parameters", "gap_p95_ms": "inter-token-p95-ms"}


def _price(text: str) -> Decimal | None:
    if not text.strip():
        return None
    try:
        price = Decimal(text.strip())
    except ArithmeticError as error:
        raise InvalidRequest(f"{text[:40]!r} is not a price per GPU hour; enter USD such as 2.50") from error
    if not price.is_finite() or price < 0:
        raise InvalidRequest(f"a GPU-hour cannot cost {text[:40]} USD")
    return price
