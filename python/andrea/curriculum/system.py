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
    """Return the figures of one GPU; null for what this card does not tell."""
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(question: str, *more: Any) -> Any:
        try:
            return getattr(nvml, question)(handle, *more)
        except nvml.NVMLError:
            return None

    name, memory = ask("nvmlDeviceGetName"), ask("nvmlDeviceGetMemoryInfo")
    use, power = ask("nvmlDeviceGetUtilizationRates"), ask("nvmlDeviceGetPowerUsage")
    limit = ask("nvmlDeviceGetEnforcedPowerLimit")
    return {
        "index": index,
        "name": name.decode() if isinstance(name, bytes) else str(name),
        "utilisation_percent": None if use is None else use.gpu,
        "memory": None if memory is None else {"total": memory.total, "used": memory.used},
        "temperature_celsius": ask("nvmlDeviceGetTemperature", 0),
        "power_watts": None if power is None else power / 1000.0,
        "power_limit_watts": None if limit is None else limit / 1000.0,
        "fan_percent": ask("nvmlDeviceGetFanSpeed"),
    }
