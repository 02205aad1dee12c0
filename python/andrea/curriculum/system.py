"""Figures of this machine for the proxy's /system: CPU, memory, disk, and the GPU where its library is."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any


def system_figures(runs: Path) -> dict[str, Any]:
    """Return what can be read now; `gpus` is a message where no GPU figures are to be had."""
    import psutil  # type: ignore[import-untyped,unused-ignore]

    memory = psutil.virtual_memory()
    place = next((p for p in (runs, *runs.absolute().parents) if p.exists()), Path("/"))
    disk = psutil.disk_usage(str(place))
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "cpus": os.cpu_count(),
        "cpu_percent": psutil.cpu_percent(interval=None),
        "memory": {"total": memory.total, "available": memory.available},
        "disk": {"total": disk.total, "free": disk.free},
        "gpus": _gpus(),
    }


def _gpus() -> list[dict[str, Any]] | str:
    try:
        import pynvml  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        return "no GPU figures: pip install nvidia-ml-py brings them"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as wrong:
        return f"no GPU figures: {wrong}"
    try:
        return [_gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as wrong:
        return f"no GPU figures: {wrong}"
    finally:
        pynvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> dict[str, Any]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    use = nvml.nvmlDeviceGetUtilizationRates(handle)
    name = nvml.nvmlDeviceGetName(handle)
    return {
        "index": index,
        "name": name.decode() if isinstance(name, bytes) else str(name),
        "utilisation_percent": use.gpu,
        "memory": {"total": memory.total, "used": memory.used},
        "temperature_celsius": nvml.nvmlDeviceGetTemperature(handle, 0),
        "power_watts": nvml.nvmlDeviceGetPowerUsage(handle) / 1000.0,
    }
