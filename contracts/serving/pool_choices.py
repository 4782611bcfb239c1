"""Choices in a pool's configuration: kinds of targets, and routing policies."""

from typing import Final, Literal, get_args

TargetKind = Literal["openai_http", "engine", "litellm", "scripted"]
# By predicted cost, or as the name says.
PolicyName = Literal["cost", "least_outstanding", "peak_ewma", "round_robin", "consistent_hash", "random"]

TARGET_KINDS: Final[tuple[TargetKind, ...]] = get_args(TargetKind)
POLICY_NAMES: Final[tuple[PolicyName, ...]] = get_args(PolicyName)
PLAIN_POLICY: Final[PolicyName] = "round_robin"  # in turn by weight: needs no knowledge about targets
