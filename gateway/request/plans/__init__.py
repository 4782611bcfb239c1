"""Plans: what all chats of one key for one model have in common, computed once instead of for every request."""
