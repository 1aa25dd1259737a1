"""Executors perform the work of a run: this machine's processes, behind a protocol that a cluster can implement."""
