"""Providers' list prices as price cards, and the cost of usage by other cards."""
