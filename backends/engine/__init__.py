"""Engine hosts: processes that run our own models and speak the engine protocol with gateways."""
