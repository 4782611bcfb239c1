"""Money, price cards, rates, and why a request has the cost that it has."""
