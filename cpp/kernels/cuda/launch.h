// What host code needs to know about the compiled kernels.
#pragma once

namespace andrea::cuda {

/// Changes whenever a kernel's order of sums changes: part of DeviceInfo::arithmetic.
constexpr char kKernelVersion[] = "2";

/// True if this build holds machine code (or PTX) that the current device can run.
bool kernels_fit_device();

}  // namespace andrea::cuda
