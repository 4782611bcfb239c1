"""Authentication: keys, identity providers' tokens, caller addresses, and limits of failures."""
