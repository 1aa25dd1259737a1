"""No rules of thumb."""
