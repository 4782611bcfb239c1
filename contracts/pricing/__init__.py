"""Money, price cards, rates, and the state of a request's price."""
