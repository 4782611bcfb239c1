"""`tollkeeper plan`: simulates how many replicas a workload needs, and what-if changes."""

from pathlib import Path
from typing import Annotated, Any

import typer

from backends.processes.compiled import use_compiled
from tollkeeper.options import DEFAULT_DATA, AsJson, Data, StoreUrl
from tollkeeper.printing import one_line_errors, print_json, print_table


def plan_command(
    replicas: Annotated[int, typer.Option(min=1, max=1024, help="Number of replicas.")] = 1,
    ttft_p95_ms: Annotated[
        float | None,
        typer.Option(
            "--ttft-p95-ms", help="Find the fewest replicas with a p95 time to first token of at most this, in ms."
        ),
    ] = None,
    gap_p95_ms: Annotated[
        float | None,
        typer.Option(
            "--inter-token-p95-ms",
            help="Find the fewest replicas with a p95 inter-token latency of at most this, in ms.",
        ),
    ] = None,
    hours: Annotated[
        float, typer.Option(min=0.01, max=720, help="Look-back window of recorded requests, in hours.")
    ] = 1.0,
    model: Annotated[str, typer.Option(help="Only this model's requests (default: all).")] = "",
    trace: Annotated[
        Path | None, typer.Option(help="Trace file to replay instead, such as those in bench/traces.")
    ] = None,
    made: Annotated[
        int | None,
        typer.Option("--generate", min=1, max=5_000_000, help="Generate this many requests instead of replaying."),
    ] = None,
    rate: Annotated[float, typer.Option(min=0.0001, help="Rate of generated requests, per second.")] = 1.0,
    input_tokens: Annotated[
        float, typer.Option(min=1, help="Mean prompt length of generated requests, in tokens.")
    ] = 512,
    output_tokens: Annotated[
        float, typer.Option(min=1, help="Mean answer length of generated requests, in tokens.")
    ] = 128,
    setup: Annotated[
        Path | None, typer.Option(help="JSON file that describes a replica (default: fitted to measured steps).")
    ] = None,
    policy: Annotated[str, typer.Option(help="Routing policy of the pool.")] = "cost",
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    traffic: Annotated[float, typer.Option(help="What if: multiply the request rate by this.")] = 1.0,
    without: Annotated[list[str] | None, typer.Option(help="What if: without this tenant; repeat for more.")] = None,
    chunk_tokens: Annotated[int | None, typer.Option(min=1, help="What if: maximum tokens per step.")] = None,
    gpu: Annotated[str, typer.Option(help="GPU that the replica was measured on, such as h100.")] = "",
    to_gpu: Annotated[str, typer.Option(help="What if: this GPU, such as h200.")] = "",
    quantization: Annotated[str, typer.Option(help="What if: weights in bf16, fp8, int8 or int4.")] = "",
    parameters: Annotated[
        float | None, typer.Option(help="Billions of weights, to compute the size of the KV cache.")
    ] = None,
    kv_token_bytes: Annotated[float | None, typer.Option(help="Bytes of KV cache per token, in all layers.")] = None,
    kv_blocks: Annotated[
        int | None, typer.Option(min=1, help="Size of the KV cache in blocks (default: measured).")
    ] = None,
    usd_per_gpu_hour: Annotated[str, typer.Option(help="USD per GPU hour.")] = "",
    to_usd_per_gpu_hour: Annotated[str, typer.Option(help="USD per GPU hour of the GPU of --to-gpu.")] = "",
    spot_share: Annotated[
        float | None, typer.Option(help="What if: this share of replicas on spot machines, 0 to 1.")
    ] = None,
    data: Data = DEFAULT_DATA,
    store_url: StoreUrl = "",
    as_json: AsJson = False,
) -> None:
    """Simulate how a pool of replicas would serve recorded traffic; engine speed is estimated from measurements."""
    use_compiled()
    # Imported here: compiled modules are found from now on, and numpy would slow down every other command.
    from tollkeeper.planning import PlanOptions, answer

    with one_line_errors():
        asked = PlanOptions(
            data=data, store_url=store_url, hours=hours, model=model, trace=trace, made=made, rate=rate,
            input_tokens=input_tokens, output_tokens=output_tokens, setup=setup, replicas=replicas, policy=policy,
            seed=seed, ttft_p95_ms=ttft_p95_ms, gap_p95_ms=gap_p95_ms, traffic=traffic, without=tuple(without or ()),
            chunk_tokens=chunk_tokens, kv_blocks=kv_blocks, gpu=gpu, to_gpu=to_gpu, quantization=quantization,
            parameters_billions=parameters, kv_token_bytes=kv_token_bytes, usd_per_gpu_hour=usd_per_gpu_hour,
            to_usd_per_gpu_hour=to_usd_per_gpu_hour, spot_share=spot_share,
        )  # fmt: skip
        found: dict[str, Any] = answer(asked)
    if as_json:
        print_json(found)
    else:
        _print(found)


def _print(found: dict[str, Any]) -> None:
    workload = found["workload"]
    typer.echo(f"{workload['source']}: {workload['requests']} requests in {workload['seconds']:.0f} s")
    rows = [_row(f"now, {found['replicas']} replicas", found["now"])]
    if "what_if" in found:
        rows.append(_row(found["what_if"]["workload"], found["what_if"]["outcome"]))
    sizing = found.get("sizing")
    if sizing is not None and sizing["outcome"] is not None:
        rows.append(_row(f"needed: {sizing['replicas']} replicas", sizing["outcome"]))
    columns = ("plan", "served", "ttft p50", "ttft p95", "inter-token p50", "inter-token p95", "busy", "USD")
    print_table(columns, rows, lambda row, column: str(row[column]), "nothing was planned")
    if sizing is not None and sizing["reason"]:
        typer.echo(sizing["reason"])


def _row(name: str, outcome: dict[str, Any]) -> dict[str, object]:
    ttft, gap = outcome["ttft_ms"], outcome["gap_ms"]
    return {
        "plan": name,
        "served": f"{outcome['served']} of {outcome['requests']}",
        "ttft p50": "-" if ttft is None else f"{ttft['p50']:.0f} ms",
        "ttft p95": "-" if ttft is None else f"{ttft['p95']:.0f} ms",
        "inter-token p50": "-" if gap is None else f"{gap['p50']:.1f} ms",
        "inter-token p95": "-" if gap is None else f"{gap['p95']:.1f} ms",
        "busy": f"{outcome['busy_share']:.0%}",
        "USD": outcome["cost_usd"] or "unknown",
    }
