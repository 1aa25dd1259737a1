"""Any text that can be encoded, for tests by hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

# In place of hypothesis' own: it begins with a table of all characters, which takes three seconds in a new checkout.
CHARACTERS = (st.integers(0, 0x7F) | st.integers(0x80, 0xD7FF) | st.integers(0xE000, 0x10FFFF)).map(chr)


def any_text(max_size: int | None = None) -> st.SearchStrategy[str]:
    return st.text(CHARACTERS, max_size=max_size)
