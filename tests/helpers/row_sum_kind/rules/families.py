"""There is one family."""
