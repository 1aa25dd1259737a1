"""Two results side by side: what became faster or slower, beyond what noise explains."""
