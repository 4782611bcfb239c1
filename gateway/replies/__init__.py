"""The reply to one request while a target produces it, in the shape of the API it came by."""
