"""Who caused what: why one token was slow, and who earned what prompt caches saved."""
