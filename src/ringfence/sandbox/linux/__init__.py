"""Confinement by the Linux kernel."""
