"""The command line: flags, subcommands, exit statuses."""
