"""The nouns every process shares: requests, usage, prices, records, tables, errors. No I/O happens here."""
