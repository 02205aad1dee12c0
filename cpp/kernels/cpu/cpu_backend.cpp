#include "kernels/cpu/cpu_backend.h"

#include "engine/errors.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/instruction_path.h"
#include "kernels/cpu/openblas.h"

namespace andrea {

Backend make_cpu_backend(const BackendRequest& request) {
  if (request.precision != Precision::kFp32)
    throw ConfigError(std::string("precision ") + precision_name(request.precision) +
                      ": the CPU back end computes in fp32 only; use fp32, or a GPU");
  if (request.threads < 0)
    throw ConfigError("threads " + std::to_string(request.threads) + ": must be 0 (one a core) or more");
  const OpenBlas& blas = openblas();
  const InstructionPath path = choose_instruction_path();
  const int threads = request.threads > 0 ? request.threads : usable_cores();
  Backend backend;
  backend.device = std::make_unique<CpuDevice>(
      threads, blas.identity + ", " + path.name,
      std::vector<std::string>{
          "BLAS: " + blas.identity + " (" + blas.path + "), one thread a call",
          std::string("instruction path: ") + path.name,
          "threads: " + std::to_string(threads) + " of " + std::to_string(usable_cores()) + " usable cores"},
      // Tiles are cut by the shape alone, so one line says it of all products.
      GemmChoices{blas.identity,
                  {{"all products, fp32", std::string("one call a tile, path ") + path.name}}});
  backend.ops.reset(path.make_ops({threads, blas.sgemm}));
  return backend;
}

}  // namespace andrea
