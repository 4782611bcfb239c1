"""The control-plane database: all reads and changes of tenants, keys, models, limits, prices and so on."""
