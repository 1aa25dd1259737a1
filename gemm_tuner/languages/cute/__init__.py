"""CuTe DSL (NVIDIA, optional): kernels compiled ahead without a GPU, launched through TVM-FFI without the DSL."""
