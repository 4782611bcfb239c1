"""Findings about engines, GPUs, telemetry and the token ledger. They concern the installation, not single tenants."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

from analytics.alerts.sources import AlertInputs, Findings, GpuHour
from analytics.queries import query
from analytics.rows import UnexpectedRow, number_of, text_of
from contracts.rules.alerts import Finding, Rule

_MINUTE: Final = 60
_LATE_SECONDS: Final = 120  # delay of telemetry: more recent minutes are not evaluated
_GPU_SECONDS: Final = 900
_LOSS_SECONDS: Final = 3_600
_BOOKS_SECONDS: Final = 2 * 3_600
_HOUR_SETTLES_SECONDS: Final = 600


def saturation(look: AlertInputs, rules: Sequence[Rule]) -> Findings:
    """Return the engines that have been saturated for some minutes, so that further requests will be slow."""
    end = (look.now_s - _LATE_SECONDS // 2) // _MINUTE * _MINUTE
    longest = int(max(rule.settings["minutes"] for rule in rules))
    rows = look.store.query(query("engine_saturation"), {"start": end - longest * _MINUTE, "end": end})
    by_engine: dict[str, dict[int, tuple[str, float, float]]] = defaultdict(dict)
    for row in rows:
        name = f"{text_of(row['model_name'])} on {text_of(row['replica_name']) or text_of(row['engine'])}"
        minute = (name, _real(row["kv_share"]), _real(row["waiting_mean"]))
        by_engine[text_of(row["engine"])][_unix_minute(row["bucket"])] = minute
    return {
        rule.id: [
            found
            for engine, minutes in by_engine.items()
            if (found := _full(engine, _last(minutes, end // _MINUTE, rule), rule)) is not None
        ]
        for rule in rules
    }


def gpu_faults(look: AlertInputs, rules: Sequence[Rule]) -> Findings:
    """Return the GPUs with a fault, new uncorrected memory errors or overheating in the last 15 minutes."""
    span = {"start": look.now_s - _GPU_SECONDS, "end": look.now_s + _MINUTE}
    rows = look.store.query(query("gpu_faults"), span)
    found: dict[str, list[Finding]] = {rule.id: [] for rule in rules}
    for row in rows:
        device, model = text_of(row["device"]), text_of(row["model_name"])
        xid, errors, hottest = row["worst_xid"], row["new_uncorrected"], row["hottest_celsius"]
        for rule in rules:
            faults = {
                "xid": f"fault {xid} (XID)" if xid else "",
                "memory": f"{errors} uncorrected memory errors" if errors else "",
                "heat": f"{_real(hottest):g} degrees Celsius"
                if hottest is not None and _real(hottest) >= rule.settings["temperature_celsius"]
                else "",
            }
            found[rule.id] += [
                Finding(
                    fingerprint=f"{device}/{kind}",
                    summary=f"GPU {device} ({model}) of {text_of(row['host_name'])}: {said}",
                    severity="ticket" if kind == "heat" else "page",
                    facts={"device": device, "fault": kind},
                )
                for kind, said in faults.items()
                if said
            ]
    return found


def telemetry_loss(look: AlertInputs, rules: Sequence[Rule]) -> Findings:
    """Return the engines and hosts with gaps in the numbers of their stored records in the last hour."""
    end = (look.now_s - _LATE_SECONDS) // _MINUTE * _MINUTE
    rows = look.store.query(query("missing_records"), {"start": end - _LOSS_SECONDS, "end": end})
    missing = [
        (text_of(row["what"]), text_of(row["source_name"]), number_of(row["numbered"]), number_of(row["stored"]))
        for row in rows
    ]
    return {
        rule.id: [
            Finding(
                fingerprint=f"{what}/{source}",
                summary=f"{numbered - stored} of {numbered} {what} of {source} in the last hour are not in the store",
                facts={"what": what, "source": source, "numbered": numbered, "stored": stored},
            )
            for what, source, numbered, stored in missing
            if numbered - stored >= rule.settings["records"]
        ]
        for rule in rules
    }


def ledger_mismatches(look: AlertInputs, rules: Sequence[Rule]) -> Findings:
    """Return replicas whose engine produced another number of tokens than the records account for, and GPUs with
    unexplained time in the last whole hour."""
    # The last records of an hour may arrive late, so an hour is evaluated ten minutes after its end.
    end = (look.now_s - _HOUR_SETTLES_SECONDS) // 3_600 * 3_600
    parameters = {"start": end - _BOOKS_SECONDS, "end": end, "tenant": None}
    rows = look.store.query(query("token_books"), parameters)
    found: dict[str, list[Finding]] = {rule.id: [] for rule in rules}
    for row in rows:
        made, accounted = number_of(row["made"]), number_of(row["accounted"])
        began, replica = f"{row['hour']:%Y-%m-%d %H:00}", text_of(row["replica"])
        for rule in rules:
            if abs(made - accounted) >= rule.settings["tokens"]:
                said = (
                    f"replica {replica} produced {made} tokens in the hour from {began} UTC; {accounted} are recorded"
                )
                facts = {"replica": replica, "hour": began, "made": made, "accounted": accounted}
                found[rule.id].append(Finding(f"{replica}/{began}", said, "page", facts=facts, ends_quietly=True))
    hour = datetime.fromtimestamp(end - 3_600, UTC)
    for gpu in look.gpu_hours(hour) if look.gpu_hours is not None else ():
        for rule in rules:
            if gpu.wall_ns and abs(gpu.unexplained_ns) * 100 >= gpu.wall_ns * rule.settings["unexplained_percent"]:
                found[rule.id].append(_unexplained(gpu, hour))
    return found


def _unexplained(gpu: GpuHour, hour: datetime) -> Finding:
    share = gpu.unexplained_ns / gpu.wall_ns
    return Finding(
        fingerprint=f"{gpu.device}/{hour:%Y-%m-%d %H:00}",
        summary=f"{share:.2%} of GPU {gpu.device}'s hour from {hour:%Y-%m-%d %H:00} UTC is missing from its ledger",
        facts={"device": gpu.device, "wall_ns": gpu.wall_ns, "unexplained_ns": gpu.unexplained_ns},
        ends_quietly=True,
    )


def _last(
    by_minute: Mapping[int, tuple[str, float, float]], end_minute: int, rule: Rule
) -> list[tuple[str, float, float]]:
    """Return the rule's last minutes; fewer if the engine ran no step in one, because then it is not saturated."""
    wanted = range(end_minute - int(rule.settings["minutes"]), end_minute)
    return [by_minute[minute] for minute in wanted if minute in by_minute]


def _unix_minute(value: object) -> int:
    if not isinstance(value, datetime):
        raise UnexpectedRow(f"the store gave {type(value).__name__} for a moment; run `python -m migrations`")
    return int(value.timestamp()) // _MINUTE


def _full(engine: str, minutes: Sequence[tuple[str, float, float]], rule: Rule) -> Finding | None:
    needed = int(rule.settings["minutes"])
    if len(minutes) < needed:
        return None
    kv, waiting = rule.settings["kv_percent"] / 100, rule.settings["waiting"]
    by_cache = all(share >= kv for _, share, _ in minutes)
    by_queue = all(mean >= waiting for _, _, mean in minutes)
    if not by_cache and not by_queue:
        return None
    name, share, mean = minutes[-1]
    is_rising = all(before[2] <= after[2] for before, after in pairwise(minutes)) and minutes[0][2] < mean
    more = ", and more wait each minute" if is_rising else ""
    what = f"its KV cache is {share:.0%} full" if by_cache else f"{mean:.1f} requests wait in it"
    return Finding(
        fingerprint=engine,
        summary=f"{name} is saturated for {needed} minutes: {what}{more}; first tokens will be late",
        facts={"engine": engine, "kv_share": round(share, 4), "waiting_mean": round(mean, 2), "is_rising": is_rising},
    )


def _real(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
