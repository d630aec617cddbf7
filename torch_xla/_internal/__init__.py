"""Not for users: nothing in here keeps its name."""
