"""Exports of users' kernels: which configuration each key gets, and the files that hold them."""
