"""Common parts of HTTP interfaces except the data plane: body limits, and one error format."""
