"""C for the CPU: compiled to shared libraries by the system's compiler and called through ctypes."""
