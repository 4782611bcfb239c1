"""The APIs that applications use: parsing of requests, paths and their operations, rendering of answers."""
