"""GPU time of engine steps: the step model, its fit, the attribution to requests, and the ledger."""
