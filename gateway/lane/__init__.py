"""The short way of the plainest request: a whole chat that one server answers, with everything accounted for."""
