"""Engine hosts: processes that run models of our own and speak the engine wire."""
