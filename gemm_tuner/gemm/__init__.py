"""Everything about M, N and K: problem, types, size files, operands, reference, vendor call, model."""
