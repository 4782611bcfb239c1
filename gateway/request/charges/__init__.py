"""What a request that has ended used, costs and is charged."""
