"""Attribution: causes of slow tokens, and savings by prompt caches, batches and cached responses."""
