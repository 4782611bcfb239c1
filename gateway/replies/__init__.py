"""The reply to one request while a target produces it, rendered in the API by which the request came."""
