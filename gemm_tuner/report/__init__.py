"""What people look at: a run as a page, in the terminal or as JSON, and two runs side by side."""
