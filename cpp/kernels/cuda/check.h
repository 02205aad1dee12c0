// Every CUDA and cuBLASLt call goes through one of these macros: an error names call, file, line and reason.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

namespace andrea::cuda {

/// Throws DeviceError unless `status` is success. Clears the error that CUDA keeps for the thread.
void check(cudaError_t status, const char* call, const char* file, int line);
void check(cublasStatus_t status, const char* call, const char* file, int line);

}  // namespace andrea::cuda

#define ANDREA_CUDA_CHECK(call) ::andrea::cuda::check((call), #call, __FILE__, __LINE__)
/// After a launch: reports a refused launch under the kernel's name.
#define ANDREA_CUDA_LAUNCHED(name) \
  ::andrea::cuda::check(cudaGetLastError(), "launch of " name, __FILE__, __LINE__)
