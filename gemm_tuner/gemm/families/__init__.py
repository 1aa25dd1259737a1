"""What Python must know of each kernel family: one module a family, named as its template."""
