// The CPU back end: float32, OpenMP, OpenBLAS on fixed tiles.
#pragma once

#include "kernels/backend.h"

namespace andrea {

/// Throws ConfigError for any precision but fp32.
Backend make_cpu_backend(const BackendRequest& request);

}  // namespace andrea
