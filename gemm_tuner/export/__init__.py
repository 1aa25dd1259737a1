"""Tuned configs for others: files of servers, a Python module, the fewest configs that serve all sizes."""
