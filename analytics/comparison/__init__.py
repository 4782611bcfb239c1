"""Compares two models: answer by answer for `tollkeeper gate`, arm by arm for rollouts."""
