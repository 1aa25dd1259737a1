"""No rules of single families: the recording has one family."""
