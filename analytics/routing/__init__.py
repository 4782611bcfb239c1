"""Routing of requests to models and targets: answers, additional attempts, and quality of the choice."""
