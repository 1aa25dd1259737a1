"""Reports: a run as an HTML page, in the terminal or as JSON, and the comparison of two results."""
