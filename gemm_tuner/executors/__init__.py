"""Where the work of a run is done: processes of this machine, behind a protocol that a cluster can implement."""
