"""What was used and what it cost, by whoever is to pay for it: reports whose parts are their total."""
