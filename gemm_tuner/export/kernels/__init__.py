"""Exports of users' kernels: the configuration of each key, and the files that contain them."""
