"""Programs to read and run: `python -m examples.<name>` from the root of the repository."""
