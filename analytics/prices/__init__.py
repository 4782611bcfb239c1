"""What providers ask, as price cards of ours, and what usage would cost under other cards."""
