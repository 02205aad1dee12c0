"""Data preparation: sources, readers, turn format, filters, packing and inspection of `.btok` files."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from andrea.data.btok import Btok, BtokWriter
    from andrea.data.pack import pack_documents, pack_files
    from andrea.data.prep import prepare
    from andrea.data.shape import has_system_prompt_shape

__all__ = ["Btok", "BtokWriter", "has_system_prompt_shape", "pack_documents", "pack_files", "prepare"]

_HOMES = {
    "Btok": "btok",
    "BtokWriter": "btok",
    "has_system_prompt_shape": "shape",
    "pack_documents": "pack",
    "pack_files": "pack",
    "prepare": "prep",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    if name in _HOMES:
        return getattr(import_module(f"andrea.data.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'andrea.data' has no attribute {name!r}")
