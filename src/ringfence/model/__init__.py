"""Plain frozen values that every other folder speaks in; no I/O."""
