"""Two models held against each other: answer by answer for the deploy gate, arm by arm for rollouts."""
