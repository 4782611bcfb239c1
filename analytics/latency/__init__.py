"""Latency over time and by prompt length, from the histograms that objectives use."""
