"""The ``check`` command: finds problems of this machine, and the commands that fix them."""
