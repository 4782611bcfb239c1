"""How requests were led to models and targets: who answered, what was tried beside, and what the choice was worth."""
