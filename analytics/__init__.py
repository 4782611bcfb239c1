"""Reports and analyses over the store and the control database: SQL queries and pure functions."""
