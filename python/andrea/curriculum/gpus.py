"""Figures of the GPUs as NVIDIA's management library tells them: use, memory, power, temperature, fan.

A card need not tell everything: data-centre cards have no fan of their own, cards split by MIG tell no use,
some notebooks no power. What is missing is null, and `missing` says why, value by value.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

VALUES = (
    "utilisation_percent",
    "memory",
    "power_watts",
    "power_limit_watts",
    "temperature_celsius",
    "fan_percent",
)


def gpu_figures() -> list[dict[str, Any]] | str:
    """Return the figures of every GPU in the library's order, or one message where there are none.

    The library is opened anew each time, so a driver that was reset or replaced is found again. Its order is
    that of the PCI bus, not that of CUDA_VISIBLE_DEVICES: `pci_bus_id` tells which GPU is which. Memory is
    in bytes.
    """
    try:
        import pynvml  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        return "no GPU figures: pip install nvidia-ml-py brings them"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as wrong:
        return f"no GPU figures: {_reason(wrong)}"
    try:
        count = pynvml.nvmlDeviceGetCount()
        return [_gpu(pynvml, index) for index in range(count)] or "no GPU figures: the driver knows no GPU"
    except pynvml.NVMLError as wrong:
        return f"no GPU figures: {_reason(wrong)}"
    finally:
        with contextlib.suppress(pynvml.NVMLError):  # a driver that went away: the next call tells
            pynvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> dict[str, Any]:
    missing: dict[str, str] = {}

    def ask(key: str, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except nvml.NVMLError as wrong:
            missing[key] = _reason(wrong)
        except AttributeError:
            missing[key] = "this nvidia-ml-py does not know it"
        return None

    about: dict[str, Any] = {"index": index, "name": None, "uuid": None, "pci_bus_id": None}
    handle = ask("handle", lambda: nvml.nvmlDeviceGetHandleByIndex(index))
    if handle is None:  # fell off the bus, or may not be looked at: the others go on
        return {
            **about,
            "mig": False,
            **dict.fromkeys(VALUES),
            "missing": dict.fromkeys(VALUES, missing["handle"]),
        }

    readings: dict[str, Callable[[], Any]] = {
        "utilisation_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        "memory": lambda: _memory(nvml, handle),
        "power_watts": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000.0,
        "power_limit_watts": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000.0,
        "temperature_celsius": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        "fan_percent": lambda: nvml.nvmlDeviceGetFanSpeed(handle),
    }
    values = {key: ask(key, readings[key]) for key in VALUES}
    mig = ask("mig", lambda: nvml.nvmlDeviceGetMigMode(handle)[0] == 1) or False
    if mig and "utilisation_percent" in missing:
        missing["utilisation_percent"] = "not told while the card is split (MIG)"
    about["name"] = _text(ask("name", lambda: nvml.nvmlDeviceGetName(handle)))
    about["uuid"] = _text(ask("uuid", lambda: nvml.nvmlDeviceGetUUID(handle)))
    about["pci_bus_id"] = ask("pci_bus_id", lambda: _bus_id(nvml.nvmlDeviceGetPciInfo(handle)))
    return {**about, "mig": mig, **values, "missing": {key: missing[key] for key in VALUES if key in missing}}


def _memory(nvml: Any, handle: Any) -> dict[str, int]:
    """Return total and used bytes; used without what the driver keeps for itself, as nvidia-smi shows it."""
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    except (nvml.NVMLError, AttributeError, TypeError):  # an older driver or an older nvidia-ml-py
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return {"total": int(memory.total), "used": int(memory.used)}


def _bus_id(pci: Any) -> str:
    """Return domain:bus:device.function as CUDA writes it, in small letters."""
    return f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"


def _text(name: Any) -> str | None:
    """Older versions of the package answer in bytes."""
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name


def _reason(wrong: Exception) -> str:
    text = str(wrong)
    return "not told by this card" if text == "Not Supported" else text.rstrip(".")
