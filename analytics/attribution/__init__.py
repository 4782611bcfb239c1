"""Attribution: causes of slow tokens, and who earned the savings of prompt caches."""
