#include "kernels/cuda/cuda_backend.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "engine/errors.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/fp8_ops.h"
#include "kernels/cuda/gpu_refusal.h"

namespace andrea {

std::string cuda_unavailable_reason() { return cuda::device_unavailable_reason(); }

Backend make_cuda_backend(const BackendRequest& request) {
  auto device = std::make_unique<cuda::CudaDevice>(request.precision, request.allow_tf32);
  Backend backend;
  switch (request.precision) {
    case Precision::kFp16:
      backend.ops = std::make_unique<cuda::CudaOps<__half>>(*device, request.precision);
      break;
    case Precision::kBf16:
      backend.ops = std::make_unique<cuda::CudaOps<__nv_bfloat16>>(*device, request.precision);
      break;
    case Precision::kFp8:
      if (const std::string refusal = cuda::fp8_refusal(device->info().name, device->capability());
          !refusal.empty())
        throw ConfigError(refusal);
      backend.ops = std::make_unique<cuda::Fp8Ops>(*device);
      break;
    default:
      backend.ops = std::make_unique<cuda::CudaOps<float>>(*device, request.precision);
      break;
  }
  backend.device = std::move(device);
  return backend;
}

}  // namespace andrea
