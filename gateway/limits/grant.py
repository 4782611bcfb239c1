"""The reservations of an admitted request, and its expected size."""

import msgspec

from gateway.limits.demand import Rates
from gateway.limits.headers import Headers
from gateway.limits.reservation import Reservation


class Grant(msgspec.Struct):
    """The reservations of an admitted request. `max_output`: maximum tokens of a choice, if it was lowered."""

    reservation: Reservation
    rates: Rates
    input_tokens: int
    output_tokens: int  # reserved, over all choices
    max_output: int | None = None
    clipped_by: str = ""  # the rule that lowered `max_output`
    headers: Headers = ()


class Size(msgspec.Struct, frozen=True):
    """How large a request is expected to be, in tokens."""

    input_tokens: int
    output_tokens: int
