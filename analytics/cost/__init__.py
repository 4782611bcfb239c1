"""Usage and cost by payer: reports whose parts sum to their total."""
