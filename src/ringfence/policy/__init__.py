"""Deciding: rules and the capability check, as functions of values."""
