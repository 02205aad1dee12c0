#include "kernels/cuda/gpu_refusal.h"

namespace andrea::cuda {

std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string gpu_refusal(const GpuFacts& facts) {
  const std::string driver = cuda_version_text(facts.driver), runtime = cuda_version_text(facts.runtime);
  if (facts.driver == 0) return "no NVIDIA driver found (this build needs one for CUDA " + runtime + ")";
  if (facts.driver_too_old || (!facts.start_error.empty() && facts.driver < facts.runtime))
    return "the driver supports CUDA " + driver + " but this build uses CUDA " + runtime +
           ": install a newer driver, or build with an older toolkit";
  if (!facts.start_error.empty())
    return "CUDA does not start: " + facts.start_error + " (driver for CUDA " + driver + ", run-time " +
           runtime + ")";
  if (facts.gpus == 0)
    return "no GPU found (driver for CUDA " + driver + " is there; is CUDA_VISIBLE_DEVICES empty?)";
  if (!facts.gpu_error.empty()) return "the GPU does not answer: " + facts.gpu_error;
  const std::string capability = std::to_string(facts.major) + "." + std::to_string(facts.minor);
  const std::string gpu = facts.name + " (compute capability " + capability + ")";
  if (facts.major < 8) return gpu + " is too old: compute capability 8.0 or newer is needed";
  if (!facts.kernels_fit)
    return "this build has no kernels for the " + gpu + ", only for the architectures " +
           facts.architectures + ": build with -DCMAKE_CUDA_ARCHITECTURES=" + std::to_string(facts.major) +
           std::to_string(facts.minor);
  return "";
}

std::string fp8_refusal(const std::string& name, const std::string& capability) {
  if (std::stod(capability) >= 8.9) return "";
  return "precision \"fp8\": the " + name + " has compute capability " + capability +
         ", FP8 needs 8.9 (Ada) or newer; use fp16 or bf16";
}

}  // namespace andrea::cuda
