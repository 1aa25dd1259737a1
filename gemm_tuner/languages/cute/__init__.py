"""CuTe DSL (NVIDIA, optional): kernels are compiled without a GPU, and launched through TVM-FFI without the DSL."""
