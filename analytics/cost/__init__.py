"""What was used and what it cost, by the one that is to pay for it: reports whose parts are their total."""
