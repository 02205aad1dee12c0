"""The exception family of andrea: the very classes the C++ engine raises (cpp/engine/errors.h).

Every message says what is wrong, where, and what to do. Exit codes: ConfigError and OutOfMemory 78,
DataError and CheckpointError 65, IoError 74, DeviceError 70.
"""

from andrea._core import (
    CheckpointError,
    ConfigError,
    DataError,
    DeviceError,
    Error,
    IoError,
    OutOfMemory,
)

__all__ = [
    "CheckpointError",
    "ConfigError",
    "DataError",
    "DeviceError",
    "Error",
    "IoError",
    "OutOfMemory",
]
