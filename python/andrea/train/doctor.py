"""What `andrea doctor` says: what was built, what is on this machine, what is missing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
from collections.abc import Iterator

from andrea.binary import path_of_binary

# What pip calls a module, where the names differ.
PACKAGES = {"pynvml": "nvidia-ml-py", "huggingface_hub": "huggingface-hub"}
# Modules that commands of an extra need, and the extra that brings them.
EXTRAS = {
    "data": ("pyarrow", "huggingface_hub", "ftfy", "zstandard", "datasketch"),
    "dashboard": ("starlette", "uvicorn", "plotly", "pynvml"),
    "plot": ("matplotlib",),
    "export": ("safetensors", "gguf"),
    "test": ("pytest", "hypothesis"),
}


def doctor_lines() -> Iterator[str]:
    """Yield lines for people; never raises for something that is merely missing."""
    from andrea import _core

    yield f"andrea {_core.VERSION}, Python {platform.python_version()}, {platform.platform()}"
    yield f"  module      {_core.__file__}"
    binary = path_of_binary()
    yield f"  binary      {binary if binary.exists() else 'not installed with this module'}"
    yield "devices"
    for name in _core.backends_present():
        yield from _device_lines(name)
    for line in _core.backends_missing():
        yield f"  not here: {line}"
    yield "machine"
    yield from _machine_lines()
    yield "extras"
    for extra, modules in EXTRAS.items():
        absent = [module for module in modules if importlib.util.find_spec(module) is None]
        if absent:
            names = " ".join(PACKAGES.get(module, module) for module in absent)
            yield f"  {extra:<9} missing: pip install {names}"
        else:
            yield f"  {extra:<9} complete"


def _device_lines(name: str) -> Iterator[str]:
    from andrea import _core
    from andrea.errors import Error

    try:
        device = _core.device_info(name)
    except Error as fault:
        yield f"  {name}: {fault}"
        return
    yield f"  {name}: {device['name']}, {device['free_bytes'] / 2**30:.1f} GiB free"
    yield f"    arithmetic: {device['arithmetic']}"
    for line in device["details"]:
        yield f"    {line}"


def _machine_lines() -> Iterator[str]:
    import psutil

    memory = psutil.virtual_memory()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield f"  cores       {cores} that this process may use"
    yield f"  memory      {memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GiB available"
    yield f"  disk here   {shutil.disk_usage('.').free / 2**30:.1f} GiB free"
    for tool in ("g++", "cmake", "ninja", "nvcc", "nvidia-smi"):
        yield f"  {tool:<11} {shutil.which(tool) or 'not found'}"
    for package in ("nanobind", "scikit-build-core", "scipy-openblas32"):
        try:
            yield f"  {package:<17} {importlib.metadata.version(package)}"
        except importlib.metadata.PackageNotFoundError:
            yield f"  {package:<17} not installed (needed to build only)"
