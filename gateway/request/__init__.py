"""The life of one request: admission, the call, settlement, and what is known of it on the way."""
