"""`tollkeeper gate`: prompts asked of two models through the gateway, and whether one may take the other's place."""
