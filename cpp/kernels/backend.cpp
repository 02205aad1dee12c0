#include "kernels/backend.h"

#include "engine/errors.h"
#include "kernels/cpu/cpu_backend.h"
#ifdef ANDREA_WITH_CUDA
#include "kernels/cuda/cuda_backend.h"
#endif

namespace andrea {
namespace {

// Empty if a CUDA device can be used, else the reason why not.
std::string cuda_unavailable() {
#ifdef ANDREA_WITH_CUDA
  return cuda_unavailable_reason();
#else
  return "this build has no CUDA back end (build with ANDREA_CUDA=ON)";
#endif
}

Backend make_cuda(const BackendRequest& request) {
#ifdef ANDREA_WITH_CUDA
  return make_cuda_backend(request);
#else
  (void)request;
  throw DeviceError("device cuda: " + cuda_unavailable());
#endif
}

}  // namespace

const char* precision_name(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return "fp32";
    case Precision::kFp16:
      return "fp16";
    case Precision::kBf16:
      return "bf16";
    case Precision::kFp8:
      return "fp8";
  }
  return "?";
}

Backend make_backend(const BackendRequest& request) {
  const bool automatic = request.device == "auto";
  if (!automatic && request.device != "cpu" && request.device != "cuda")
    throw ConfigError("device \"" + request.device + "\": must be cpu, cuda or auto");
  const std::string reason = request.device == "cpu" ? "" : cuda_unavailable();
  if (request.device == "cuda" || (automatic && reason.empty())) {
    if (!reason.empty()) throw DeviceError("device cuda: " + reason + "; use --device cpu");
    return make_cuda(request);
  }
  Backend backend = make_cpu_backend(request);
  if (automatic) backend.note = "running on the CPU: " + reason;
  return backend;
}

std::vector<std::string> backends_present() {
  std::vector<std::string> names{"cpu"};
  if (cuda_unavailable().empty()) names.emplace_back("cuda");
  return names;
}

std::vector<std::string> backends_missing() {
  std::vector<std::string> lines;
  if (const std::string reason = cuda_unavailable(); !reason.empty()) lines.push_back("cuda: " + reason);
  return lines;
}

}  // namespace andrea
