"""What gateways and engine hosts say to each other."""
