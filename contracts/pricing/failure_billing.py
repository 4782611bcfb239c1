"""Billing of calls that fail before their first token: nothing, or an estimate, by the target's setting."""

from typing import Final, Literal

import msgspec

from contracts.errors import ConfigurationError
from contracts.serving.configuration import TargetSpec

BILLING_SETTING: Final = "billing"  # in a target's settings

FailureCharge = Literal["free", "estimate"]


class FailureBilling(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The charge for each kind of failure. Tokens that have arrived are always charged.

    `on_error`: the server answered with an error status that may follow work on the prompt (5xx, 400, 409, 413, 415,
    422). `on_timeout`: it did not answer in time. `on_break`: it closed the connection or sent something unreadable.
    `on_cancel`: the client disconnected, or another target answered first.
    """

    on_error: FailureCharge = "free"
    on_timeout: FailureCharge = "estimate"
    on_break: FailureCharge = "estimate"
    on_cancel: FailureCharge = "estimate"


DEFAULT_BILLING: Final = FailureBilling()


def read_billing(target: TargetSpec) -> FailureBilling:
    """Return a target's `settings.billing`. Raise ConfigurationError if it cannot be used."""
    stated = target.settings.get(BILLING_SETTING)
    if stated is None:
        return DEFAULT_BILLING
    try:
        return msgspec.convert(stated, FailureBilling)
    except msgspec.ValidationError as error:
        raise ConfigurationError(
            f"target {target.id!r}, {BILLING_SETTING}: {error}; its fields are "
            f"{', '.join(FailureBilling.__struct_fields__)}, each 'free' or 'estimate'"
        ) from error
