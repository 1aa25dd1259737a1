"""C for the CPU: compiled by the system's compiler to shared libraries, launched by ctypes."""
