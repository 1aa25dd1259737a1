"""The versions of installed packages, read without importing them."""

from __future__ import annotations

from importlib import metadata


def package_version(module: str) -> str | None:
    """The version of the package that a module is of, which may have another name, as Triton's has in builds for ROCm;
    None if there is none."""
    try:
        return metadata.version(module)
    except metadata.PackageNotFoundError:
        names = metadata.packages_distributions().get(module, [])
        return metadata.version(names[0]) if names else None
