"""Figures of this machine for the proxy's /system: CPU, memory, disk, and the GPU where its library is."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from andrea.curriculum.gpus import gpu_figures


def system_figures(runs: Path) -> dict[str, Any]:
    """Return what can be read now; `gpus` is a message where no GPU figures are to be had."""
    import psutil  # type: ignore[import-untyped,unused-ignore]

    memory = psutil.virtual_memory()
    place = next((p for p in (runs, *runs.absolute().parents) if p.exists()), Path("/"))
    disk = psutil.disk_usage(str(place))
    return {
        "host": platform.node(),
        "machine": platform.machine(),
        "system": platform.system(),
        "cpus": os.cpu_count(),
        "cpu_percent": psutil.cpu_percent(interval=None),
        "memory": {"total": memory.total, "available": memory.available},
        "disk": {"total": disk.total, "free": disk.free},
        "gpus": gpu_figures(),
    }
