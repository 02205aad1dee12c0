"""GPU figures: NVIDIA's own Python package over a library of Python functions: units and errors are real."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")

from andrea.curriculum.gpus import VALUES, gpu_figures  # noqa: E402

NOT_SUPPORTED, NO_FUNCTION, LOST, UNKNOWN = 3, 13, 15, 999


class Driver:
    """libnvidia-ml with `count` cards; `refuse`: the code that a function, or (function, card), answers."""

    def __init__(self, count: int = 1) -> None:
        self.count, self.refuse = count, dict[Any, int]()
        self.open = 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            first = arguments[0] if arguments else None
            card = getattr(first, "value", None)
            code = self.refuse.get((name, card), self.refuse.get(name, 0))
            return code or self.answer(name, card, arguments)

        return call

    def answer(self, name: str, card: Any, arguments: tuple[Any, ...]) -> int:
        out: Any = getattr(arguments[-1], "_obj", None) if arguments else None
        if name in ("nvmlInitWithFlags", "nvmlInit_v2"):
            self.open += 1
        elif name == "nvmlShutdown":
            self.open -= 1
        elif name == "nvmlDeviceGetCount_v2":
            out.value = self.count
        elif name == "nvmlDeviceGetHandleByIndex_v2":
            ctypes.cast(ctypes.byref(out), ctypes.POINTER(ctypes.c_void_p))[0] = 1000 + card
        elif name == "nvmlDeviceGetUtilizationRates":
            out.gpu, out.memory = 97, 40
        elif name == "nvmlDeviceGetMemoryInfo_v2":
            out.total, out.reserved, out.used, out.free = 80 << 30, 1 << 30, 7 << 30, 72 << 30
        elif name == "nvmlDeviceGetMemoryInfo":
            out.total, out.used, out.free = 80 << 30, 8 << 30, 72 << 30  # with what the driver keeps
        elif name == "nvmlDeviceGetPciInfo_v3":
            out.domain, out.bus, out.device = 0, 0x3B + card_number(arguments[0]), 0
        elif name in ("nvmlDeviceGetName", "nvmlDeviceGetUUID"):
            arguments[1].value = (
                b"NVIDIA H200" if name.endswith("Name") else b"GPU-%d" % card_number(arguments[0])
            )
        elif name == "nvmlDeviceGetMigMode":
            arguments[1]._obj.value = 0
        else:
            out.value = {
                "nvmlDeviceGetPowerUsage": 312_500,
                "nvmlDeviceGetEnforcedPowerLimit": 700_000,
                "nvmlDeviceGetTemperature": 61,
                "nvmlDeviceGetFanSpeed": 33,
            }[name]
        return 0


def card_number(handle: Any) -> int:
    return int(ctypes.cast(handle, ctypes.c_void_p).value or 0) - 1000


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(pynvml, "nvmlLib", made)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return made


def test_units_and_the_names_that_cuda_knows_a_card_by(driver: Driver) -> None:
    driver.count = 2
    first, second = cards(gpu_figures())
    assert first["memory"] == {"total": 80 << 30, "used": 7 << 30}  # bytes, without the driver's own
    assert (first["power_watts"], first["power_limit_watts"]) == (312.5, 700.0)
    assert (first["utilisation_percent"], first["temperature_celsius"], first["fan_percent"]) == (97, 61, 33)
    assert (first["name"], first["missing"], first["mig"]) == ("NVIDIA H200", {}, False)
    assert [first["pci_bus_id"], second["pci_bus_id"]] == ["0000:3b:00.0", "0000:3c:00.0"]
    assert (first["uuid"], second["uuid"]) == ("GPU-0", "GPU-1")
    assert driver.open == 0


@pytest.mark.parametrize(
    ("function", "key"),
    [
        ("nvmlDeviceGetUtilizationRates", "utilisation_percent"),
        ("nvmlDeviceGetPowerUsage", "power_watts"),
        ("nvmlDeviceGetEnforcedPowerLimit", "power_limit_watts"),
        ("nvmlDeviceGetTemperature", "temperature_celsius"),
        ("nvmlDeviceGetFanSpeed", "fan_percent"),
    ],
)
@pytest.mark.parametrize(
    ("code", "reason"), [(NOT_SUPPORTED, "not told by this card"), (UNKNOWN, "Unknown Error")]
)
def test_one_value_may_be_missing(driver: Driver, function: str, key: str, code: int, reason: str) -> None:
    driver.refuse[function] = code
    (card,) = cards(gpu_figures())
    assert card["missing"] == {key: reason}
    assert [name for name in VALUES if card[name] is None] == [key]


def test_memory_of_an_older_driver_and_of_none(driver: Driver) -> None:
    driver.refuse["nvmlDeviceGetMemoryInfo_v2"] = NO_FUNCTION
    (card,) = cards(gpu_figures())
    assert card["memory"] == {"total": 80 << 30, "used": 8 << 30}
    driver.refuse["nvmlDeviceGetMemoryInfo"] = NOT_SUPPORTED  # memory shared with the host
    (card,) = cards(gpu_figures())
    assert card["memory"] is None
    assert card["missing"] == {"memory": "not told by this card"}


def test_a_card_that_is_lost_does_not_take_the_others_along(driver: Driver) -> None:
    driver.count = 3
    driver.refuse["nvmlDeviceGetHandleByIndex_v2", 1] = LOST
    first, lost, third = cards(gpu_figures())
    assert first["missing"] == third["missing"] == {}
    assert lost["missing"] == dict.fromkeys(VALUES, "GPU is lost")
    assert (lost["index"], lost["memory"]) == (1, None)


def test_a_driver_that_goes_away_and_comes_back(driver: Driver) -> None:
    for function in ("nvmlDeviceGetCount_v2", "nvmlShutdown"):
        driver.refuse[function] = UNKNOWN
    assert gpu_figures() == "no GPU figures: Unknown Error"
    driver.refuse = {"nvmlInitWithFlags": 9, "nvmlInit_v2": 9}
    assert gpu_figures() == "no GPU figures: Driver Not Loaded"
    driver.refuse = {}
    assert cards(gpu_figures())[0]["missing"] == {}
    driver.count = 0
    assert gpu_figures() == "no GPU figures: the driver knows no GPU"


def test_a_split_card_says_why_it_tells_no_use(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.refuse["nvmlDeviceGetUtilizationRates"] = NOT_SUPPORTED
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMigMode", lambda handle: [1, 1])
    (card,) = cards(gpu_figures())
    assert card["mig"] is True
    assert card["missing"] == {"utilisation_percent": "not told while the card is split (MIG)"}


def test_an_older_package_without_a_function_and_with_bytes(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(pynvml, "nvmlDeviceGetFanSpeed")
    monkeypatch.delattr(pynvml, "nvmlMemory_v2")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda handle: b"Tesla T4")
    (card,) = cards(gpu_figures())
    assert card["name"] == "Tesla T4"
    assert card["memory"]["used"] == 8 << 30
    assert card["missing"] == {"fan_percent": "this nvidia-ml-py does not know it"}


def test_the_watch_goes_on_when_a_look_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from andrea.curriculum import system
    from andrea.dashboard import machine

    looks = iter([RuntimeError("the driver is being replaced"), {"gpus": []}])

    def look(place: Any) -> Any:
        found = next(looks)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(system, "system_figures", look)
    watch = machine.MachineWatch(tmp_path)
    stop = SimpleNamespace(is_set=lambda: len(watch.history()) == 2, wait=lambda seconds: None)
    monkeypatch.setattr(watch, "_stop", stop)
    watch._watch()
    assert [look["gpus"] for look in watch.history()] == [
        "no figures of this machine: the driver is being replaced",
        [],
    ]


def cards(figures: list[dict[str, Any]] | str) -> list[dict[str, Any]]:
    assert isinstance(figures, list), figures
    return figures
