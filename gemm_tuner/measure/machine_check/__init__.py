"""What this machine can do for the tuner, what is in the way, and the command that fixes it."""
