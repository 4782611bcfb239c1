"""Compares answers with a reference period: lengths, finish reasons, refusals, tool calls, schema failures."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from analytics.quality.drift import PSI_LARGE, PSI_MODERATE, Distance, distance, length_bins, stability_index
from analytics.queries import query
from analytics.rows import UnexpectedRow, number_of, text_of
from backends.store.client import Row, StoreClient
from contracts.errors import InvalidRequest

Verdict = Literal["same", "shifted", "changed", "too_few"]
LEAST_ANSWERS: Final = 100  # on either side: with fewer answers, shifts may be chance
_REFUSALS: Final = frozenset({"content_filter", "refusal"})  # finish reasons
_CERTAIN, _SHIFTED, _CHANGED = 0.001, 0.1, 0.3  # a KS distance of 0.1 means that a tenth of the answers moved
_KEPT: Final = timedelta(days=360)  # requests are stored for 13 months


@dataclass(frozen=True, slots=True)
class Sample:
    """Properties of one period's answers."""

    answers: int = 0
    lengths: Mapping[int, int] | None = None  # number of answers by number of tokens
    reasons: Mapping[str, int] | None = None
    with_tools: int = 0
    schema_failures: int = 0
    with_schema: int = 0

    @property
    def refusals(self) -> int:
        """Return the number of answers whose finish reason is a refusal by the model or a filter."""
        return sum(count for reason, count in (self.reasons or {}).items() if reason in _REFUSALS)


@dataclass(frozen=True, slots=True)
class Change:
    """Change of one property. `current` and `reference` are its means or shares; `None` without data."""

    aspect: str
    verdict: Verdict
    current: float | None
    reference: float | None
    psi: float | None = None
    ks: Distance | None = None

    def as_json(self) -> dict[str, object]:
        """Return the change as JSON values."""
        return {
            "aspect": self.aspect,
            "verdict": self.verdict,
            "current": _rounded(self.current),
            "reference": _rounded(self.reference),
            "psi": _rounded(self.psi),
            "ks": None if self.ks is None else _rounded(self.ks.statistic),
            "ks_p_value": None if self.ks is None else self.ks.p_value,
        }


@dataclass(frozen=True, slots=True)
class Quality:
    """One tenant's answers of one model, compared with their reference."""

    tenant: str
    model: str
    current: Sample
    reference: Sample
    changes: tuple[Change, ...]

    def as_json(self) -> dict[str, object]:
        """Return the JSON values that the command line and the HTTP API return."""
        return {
            "tenant": self.tenant,
            "model": self.model,
            "answers": self.current.answers,
            "reference_answers": self.reference.answers,
            "changes": [change.as_json() for change in self.changes],
        }


def quality_report(
    store: StoreClient,
    now: datetime,
    window: timedelta,
    reference: timedelta,
    *,
    tenant: str | None = None,
    team: str | None = None,
    model: str | None = None,
) -> list[Quality]:
    """Compare the answers of the last `window` with those of `reference` before it, by tenant and model.

    Raises InvalidRequest if both together are longer than requests are stored (13 months), StoreUnavailable.
    """
    if window + reference > _KEPT:
        raise InvalidRequest(
            f"window and reference are {(window + reference).days} days together; requests are kept for {_KEPT.days}",
            param="reference",
            code="window_beyond_retention",
        )
    split = now - window
    parameters = {
        "start": int((split - reference).timestamp()),
        "split": int(split.timestamp()),
        "end": int(now.timestamp()) + 1,
        "tenant": tenant,
        "team": team,
        "model": model,
    }
    samples: dict[tuple[str, str], dict[bool, Sample]] = {}
    for row in store.query(query("quality"), parameters):
        of_model = samples.setdefault((text_of(row["tenant"]), text_of(row["model"])), {})
        of_model[bool(row["is_current"])] = _sample(row)
    nothing = Sample()
    return [
        compare(name, model_name, found.get(True, nothing), found.get(False, nothing))
        for (name, model_name), found in samples.items()
    ]


def compare(tenant: str, model: str, current: Sample, reference: Sample) -> Quality:
    """Compare a sample with its reference, property by property."""
    changes = (
        _lengths(current, reference),
        _reasons(current, reference),
        _share("refusals", (current.refusals, current.answers), (reference.refusals, reference.answers)),
        _share("tool_calls", (current.with_tools, current.answers), (reference.with_tools, reference.answers)),
        _share(
            "schema_failures",
            (current.schema_failures, current.with_schema),
            (reference.schema_failures, reference.with_schema),
        ),
    )
    return Quality(tenant, model, current, reference, changes)


def _lengths(current: Sample, reference: Sample) -> Change:
    now, then = current.lengths or {}, reference.lengths or {}
    if min(current.answers, reference.answers) < LEAST_ANSWERS:
        return Change("output_tokens", "too_few", _mean(now), _mean(then))
    psi, ks = stability_index(*length_bins(now, then)), distance(now, then)
    # With many answers the smallest shift is significant; it is a change only if it is large too.
    verdict = _verdict(psi)
    if ks.p_value < _CERTAIN and ks.statistic >= _SHIFTED and verdict != "changed":
        verdict = "changed" if ks.statistic >= _CHANGED else "shifted"
    return Change("output_tokens", verdict, _mean(now), _mean(then), psi, ks)


def _reasons(current: Sample, reference: Sample) -> Change:
    now, then = current.reasons or {}, reference.reasons or {}
    shares = (
        (now.get("stop", 0) / current.answers if current.answers else None),
        (then.get("stop", 0) / reference.answers if reference.answers else None),
    )
    if min(current.answers, reference.answers) < LEAST_ANSWERS:
        return Change("finish_reasons", "too_few", *shares)
    psi = stability_index(now, then)
    return Change("finish_reasons", _verdict(psi), *shares, psi)


def _share(aspect: str, current: tuple[int, int], reference: tuple[int, int]) -> Change:
    now_share, then_share = (part / whole if whole else None for part, whole in (current, reference))
    if min(current[1], reference[1]) < LEAST_ANSWERS:
        return Change(aspect, "too_few", now_share, then_share)
    now, then = ({"yes": part, "no": whole - part} for part, whole in (current, reference))
    psi = stability_index(now, then)
    return Change(aspect, _verdict(psi), now_share, then_share, psi)


def _verdict(psi: float) -> Verdict:
    return "changed" if psi >= PSI_LARGE else "shifted" if psi >= PSI_MODERATE else "same"


def _mean(counts: Mapping[int, int]) -> float | None:
    answers = sum(counts.values())
    return sum(value * count for value, count in counts.items()) / answers if answers else None


def _sample(row: Row) -> Sample:
    return Sample(
        answers=number_of(row["answers"]),
        lengths={int(key): count for key, count in _items(row["lengths"])},
        reasons={str(key): count for key, count in _items(row["reasons"])},
        with_tools=number_of(row["with_tools"]),
        schema_failures=number_of(row["schema_failures"]),
        with_schema=number_of(row["with_schema"]),
    )


def _items(value: object) -> Iterable[tuple[int | str, int]]:
    if not isinstance(value, Mapping):
        raise UnexpectedRow(f"the store gave {type(value).__name__} for a map; run `python -m migrations`")
    return [(key, number_of(count)) for key, count in value.items()]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
