"""Finds how much a model can serve before it breaks its promises, and what that costs."""
