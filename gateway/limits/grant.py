"""The reservations of an admitted request, and its expected size."""

import msgspec

from gateway.limits.demand import Rates
from gateway.limits.headers import Headers
from gateway.limits.reservation import Reservation


class Grant(msgspec.Struct):
    """What an admitted request holds. `max_output` is the most tokens a choice may have, where that had to be cut."""

    reservation: Reservation
    rates: Rates
    input_tokens: int
    output_tokens: int  # reserved, over all choices
    max_output: int | None = None
    clipped_by: str = ""  # the rule that cut `max_output`
    headers: Headers = ()


class Size(msgspec.Struct, frozen=True):
    """How large a request is expected to be, in tokens."""

    input_tokens: int
    output_tokens: int
