"""A run's work on the machines of a cluster: this process keeps the store and decides, the others compile and time."""
