"""Understanding a command: what it is about to do, and how risky that is."""
