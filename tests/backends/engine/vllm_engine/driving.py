"""Requests for an engine, and what came of them."""

from collections.abc import Sequence
from typing import Any

from backends.engine.vllm_engine.engine import VllmEngine
from contracts.engine.wire import Delta, Embedded, Finished, Sampling, Submit


def ask(number: int = 1, token_ids: list[int] | None = None, *, max_tokens: int = 16, **options: Any) -> Submit:
    """Build a request; fields of Sampling and of Submit may be given together."""
    names = set(Sampling.__struct_fields__)
    sampling = {name: value for name, value in options.items() if name in names}
    rest = {name: value for name, value in options.items() if name not in names}
    return Submit(
        request_id=number.to_bytes(16, "big"),
        model="m",
        token_ids=[5, 6, 7] if token_ids is None else token_ids,
        sampling=Sampling(max_tokens=max_tokens, **sampling),
        **rest,
    )


def drive(engine: VllmEngine, *submits: Submit) -> list[Delta | Finished | Embedded]:
    """Submit, and step until nothing is left to do."""
    for submit in submits:
        engine.submit(submit)
    return rest(engine)


def rest(engine: VllmEngine) -> list[Delta | Finished | Embedded]:
    """Step until nothing is left to do."""
    events: list[Delta | Finished | Embedded] = []
    while engine.has_work:
        events += engine.step()
    return events


def deltas(events: Sequence[Any]) -> list[Delta]:
    """Return the deltas among events."""
    return [one for one in events if isinstance(one, Delta)]


def text(events: list[Any], index: int = 0) -> str:
    """Join what was said of one choice."""
    return "".join(one.content for one in events if isinstance(one, Delta) and one.index == index)


def end(events: list[Any]) -> Finished:
    """Return the one end there is."""
    (found,) = [one for one in events if isinstance(one, Finished)]
    return found
