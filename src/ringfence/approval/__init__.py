"""Asking somebody: requests, answers, and who is there to answer."""
