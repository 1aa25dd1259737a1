"""The report of a run: ``data`` reads it, ``html`` and ``text`` show it, ``page/`` holds the page's parts."""
