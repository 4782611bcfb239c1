"""The nouns shared by all processes: requests, usage, prices, records, tables, errors. No I/O happens here."""
