// The CUDA back end. No CUDA header here: the engine and backend.cpp include this file.
#pragma once

#include "kernels/backend.h"

namespace andrea {

/// Empty if a usable GPU and driver are here, else one sentence (driver and run-time versions where they
/// matter).
std::string cuda_unavailable_reason();

Backend make_cuda_backend(const BackendRequest& request);

}  // namespace andrea
