"""YAML by libyaml, where PyYAML has it: ``yaml.safe_load`` and ``safe_dump`` take ten times as long."""

from __future__ import annotations

from typing import Any

import yaml

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def load(text: str) -> Any:
    return yaml.load(text, Loader=_LOADER)


def dump(value: object, *, sort_keys: bool = True) -> str:
    text: str = yaml.dump(value, Dumper=_DUMPER, sort_keys=sort_keys)
    return text
