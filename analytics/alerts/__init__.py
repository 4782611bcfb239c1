"""Who is told of what: findings by kind of rule, the evaluator that settles them, the dispatcher that sends."""
