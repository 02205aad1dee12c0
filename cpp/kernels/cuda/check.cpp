#include "kernels/cuda/check.h"

#include <string>

#include "engine/errors.h"

namespace andrea::cuda {
namespace {

std::string place(const char* call, const char* file, int line) {
  std::string path(file);
  if (const auto at = path.rfind("cpp/"); at != std::string::npos) path.erase(0, at);
  return std::string(call) + " failed at " + path + ":" + std::to_string(line) + ": ";
}

const char* reason(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "cuBLASLt is not initialised (driver or GPU lost?)";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "cuBLASLt could not allocate memory";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "invalid value";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "not supported on this GPU";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "the product failed on the GPU";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "this combination of types, layouts and sizes is not supported";
    default:
      return "internal error of cuBLASLt";
  }
}

}  // namespace

void check(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();
  throw DeviceError(place(call, file, line) + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) +
                    ")");
}

void check(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(place(call, file, line) + reason(status) + " (cuBLAS status " + std::to_string(status) +
                    ")");
}

}  // namespace andrea::cuda
