"""The command line: flags, subcommands and exit statuses.

May import all packages but surface.
"""
