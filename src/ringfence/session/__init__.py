"""Sessions, workspaces and their homes."""
