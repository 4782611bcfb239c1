"""Plans: what is alike of all chats with one key for one model, so that it is worked out once and not per request."""
