"""Send an error: as a complete response, or as the last event of a stream."""

import math

from contracts.errors import BudgetExhausted, LimitExceeded, TollkeeperError
from gateway.apis.rendering import OPENAI_ERRORS, ErrorShape
from gateway.replies.reply import JSON
from gateway.wire.exchange import Exchange, Headers


def send_error(
    exchange: Exchange, error: TollkeeperError, headers: Headers = (), shape: ErrorShape = OPENAI_ERRORS
) -> None:
    """Answer with an error: as a body if nothing was sent yet, as the stream's last event if it had begun.

    A stream that ends with an error has no [DONE], so that no client takes it for complete.
    """
    if shape.of_request is not None:
        shape, more = shape.of_request(headers)
        headers = (*headers, *more)
    if exchange.is_started:
        if shape.event is None:
            exchange.break_off()
        else:
            exchange.end(shape.event(error))
        return
    headers = (*headers, *_retry_headers(error))
    exchange.send(shape.status(error), JSON, shape.body(error), headers)


def _retry_headers(error: TollkeeperError) -> Headers:
    """Return the retry headers: in whole seconds as in HTTP, and in milliseconds for the SDKs that read them."""
    found: Headers = ()
    wait = error.retry_after_seconds
    if wait is not None:
        found = ((b"retry-after", b"%d" % max(1, math.ceil(wait))),)
        if isinstance(error, LimitExceeded | BudgetExhausted):
            found += ((b"retry-after-ms", b"%d" % math.ceil(wait * 1000)),)
    if error.should_retry is not None:
        found += ((b"x-should-retry", b"true" if error.should_retry else b"false"),)
    return found
