"""What a gateway does for rollouts: who is led to which arm, what both did, copies to the candidate, the way back."""
