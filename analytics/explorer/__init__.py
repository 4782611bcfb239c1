"""Single requests: finding them, and everything that is known of one."""
