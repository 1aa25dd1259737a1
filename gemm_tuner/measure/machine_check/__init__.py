"""What this machine can do for the tuner, what stands in the way, and the command that mends it."""
