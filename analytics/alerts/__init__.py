"""Alerting: findings by kind of rule, the evaluator that opens and resolves alerts, the dispatcher that notifies."""
