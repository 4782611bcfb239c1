"""What will be spent: forecasts by tenant that say how sure they are, and what a month will come to."""
