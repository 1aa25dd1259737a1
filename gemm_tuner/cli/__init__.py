"""The command line: flags, subcommands and exit statuses."""
