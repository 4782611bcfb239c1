"""Markers of system prompts: who can make them, and what is recognised."""

import re
from collections.abc import Callable

import pytest

from algorithms.detectors.canary import CANARY_PATTERNS, canary_line, canary_marker, is_canary

_SECRET, _DAY_NS = b"s" * 32, 86_400 * 1_000_000_000


def test_a_marker_stays_for_a_day_so_that_prompts_keep_their_beginning() -> None:
    assert canary_marker(_SECRET, "acme", "p", 5 * _DAY_NS) == canary_marker(_SECRET, "acme", "p", 6 * _DAY_NS - 1)
    assert canary_marker(_SECRET, "acme", "p", 5 * _DAY_NS) != canary_marker(_SECRET, "acme", "p", 6 * _DAY_NS)


def test_tenants_policies_and_installations_have_markers_of_their_own() -> None:
    markers = {
        canary_marker(secret, tenant, policy, 0)
        for secret in (_SECRET, b"t" * 32)
        for tenant in ("acme", "zeta")
        for policy in ("p", "q")
    }
    assert len(markers) == 8


def test_every_marker_of_this_installation_is_recognised_and_no_other() -> None:
    ours = canary_marker(_SECRET, "zeta", "q", 77 * _DAY_NS)
    assert is_canary(_SECRET, ours)
    assert not is_canary(b"t" * 32, ours)
    assert not is_canary(_SECRET, ours[:-1] + ("a" if ours[-1] != "a" else "b"))
    assert not is_canary(_SECRET, "tkc-short")


@pytest.mark.parametrize("shape", [str.upper, lambda m: " ".join(m.replace("-", "")), lambda m: m.encode().hex()])
def test_a_marker_is_recognised_however_it_is_spelled(shape: Callable[[str], str]) -> None:
    spelled = shape(canary_marker(_SECRET, "acme", "p", 0))
    found = [match[0] for form in CANARY_PATTERNS for match in re.finditer(form, f"so: {spelled} and")]
    assert any(is_canary(_SECRET, each) for each in found)


def test_the_line_holds_the_marker() -> None:
    marker = canary_marker(_SECRET, "acme", "p", 0)
    assert canary_line(marker).endswith(marker)
