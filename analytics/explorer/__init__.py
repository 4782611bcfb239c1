"""Single requests: searching them, and the details of one."""
