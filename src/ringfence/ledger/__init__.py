"""The record of what was decided and run."""
