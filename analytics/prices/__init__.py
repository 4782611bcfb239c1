"""Providers' list prices as price cards, and the cost of usage under other cards."""
