// Why a GPU cannot be used, in one sentence with both versions: text from facts, compiled everywhere.
#pragma once

#include <string>

namespace andrea::cuda {

/// What the driver says; versions as CUDA counts them (13020 is 13.2), 0: there is none.
struct GpuFacts {
  int driver = 0;   ///< newest CUDA that the driver runs
  int runtime = 0;  ///< CUDA that this build was made with
  bool driver_too_old = false;
  std::string start_error;  ///< CUDA's reason if it does not start; empty: it does
  int gpus = 0;
  std::string gpu_error;      ///< CUDA's reason if the GPU does not answer
  std::string name;           ///< "NVIDIA GeForce RTX 3060"
  int major = 0, minor = 0;   ///< compute capability
  bool kernels_fit = false;   ///< this build has machine code for it
  std::string architectures;  ///< of this build: "80, 86, 89, 90"
};

/// Empty if nothing is in the way.
std::string gpu_refusal(const GpuFacts& facts);
/// Why a GPU of this compute capability ("8.6") cannot compute in FP8; empty if it can.
std::string fp8_refusal(const std::string& name, const std::string& capability);
/// 13020 -> "13.2"
std::string cuda_version_text(int version);

}  // namespace andrea::cuda
