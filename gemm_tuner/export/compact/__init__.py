"""The fewest configs that serve all sizes of a run within a loss, and which sizes each of them serves."""
