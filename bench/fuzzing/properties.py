"""All that must hold, each with what it is tried on; and the trying."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import hypothesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.fuzzing import body_checks, request_checks, resource_checks, upstream_checks
from bench.fuzzing.rig import FuzzRig


@dataclass(frozen=True, slots=True)
class Property:
    """Something that holds for every example. `check` raises Fault if it does not."""

    name: str
    examples: Callable[[FuzzRig], st.SearchStrategy[Any]]
    check: Callable[[FuzzRig, Any], Awaitable[None]]


PROPERTIES: Final = (
    Property("cut_requests", request_checks.cut_requests, request_checks.check_cut),
    Property("broken_requests", request_checks.broken_requests, request_checks.check_broken),
    Property("heads_behind", request_checks.heads_behind, request_checks.check_behind),
    Property("queued_requests", request_checks.queued_requests, request_checks.check_queued),
    Property("left_requests", request_checks.left_requests, request_checks.check_left),
    Property("badly_chunked_requests", request_checks.badly_chunked_requests, request_checks.check_badly_chunked),
    Property("bad_bodies", body_checks.bad_bodies, body_checks.check_bad_body),
    Property("resource_requests", resource_checks.resource_requests, resource_checks.check_resource),
    Property("cut_answers", upstream_checks.served, upstream_checks.check_served),
    Property("short_answers", upstream_checks.short_answers, upstream_checks.check_short),
    Property("broken_answers", upstream_checks.broken_answers, upstream_checks.check_broken_answer),
)


class Failed(AssertionError):
    """An example that breaks a property: the smallest that was found."""

    def __init__(self, name: str, example: object, cause: BaseException) -> None:
        super().__init__(f"{name}: {cause}\n{example!r}"[:20_000])
        self.name = name
        self.example = example
        self.cause = cause


def attempt(rig: FuzzRig, tried: Property, examples: int, seed: int | None = None) -> int:
    """Try a property on the given number of examples, by a seed or by chance; return how many there were. Raises
    Failed.
    """
    count = 0
    last: object = None

    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(tried.examples(rig))
    def holds(example: object) -> None:
        nonlocal count, last
        count, last = count + 1, example
        try:
            rig.run(_checked(rig, tried, example))
        except Exception:
            rig.run(rig.recover())
            raise

    if seed is not None:
        holds = hypothesis.seed(seed)(holds)
    try:
        holds()
        rig.check_descriptors()
    except (Exception, BaseExceptionGroup) as error:
        raise Failed(tried.name, last, error) from error
    return count


async def _checked(rig: FuzzRig, tried: Property, example: object) -> None:
    await tried.check(rig, example)
    await rig.settle()
