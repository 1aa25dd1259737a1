"""Imported by the fork server alone: what a terminal sends to the tuner's process group is not for the server, or a
Ctrl-C that lets compiles end would end them."""

from __future__ import annotations

import os

os.setpgid(0, 0)
