"""Common parts of HTTP interfaces other than the data plane: limits, ids, and one error format."""
