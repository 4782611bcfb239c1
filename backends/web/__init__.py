"""What every HTTP interface of ours but the data plane shares: bounds on bodies, and errors in one shape."""
