"""Where GPU time and its money went: a ledger that closes, who pays for idleness, and what a token cost us."""
