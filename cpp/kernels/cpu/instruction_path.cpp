#include "kernels/cpu/instruction_path.h"

#include <cstdlib>

#include "engine/errors.h"

namespace andrea {

namespace cpu_baseline {
Ops* make_ops(const CpuSettings& settings);
}
#ifdef ANDREA_CPU_X86
namespace cpu_avx2 {
Ops* make_ops(const CpuSettings& settings);
}
namespace cpu_avx512 {
Ops* make_ops(const CpuSettings& settings);
}
#endif

InstructionPath choose_instruction_path() {
  const char* variable = std::getenv("ANDREA_CPU_PATH");
  const std::string wanted = variable == nullptr ? "" : variable;
  if (!wanted.empty() && wanted != "avx512" && wanted != "avx2" && wanted != "baseline")
    throw ConfigError("ANDREA_CPU_PATH is \"" + wanted + "\": must be avx512, avx2 or baseline");
#ifdef ANDREA_CPU_X86
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  if (avx512 && (wanted.empty() || wanted == "avx512")) return {"avx512", cpu_avx512::make_ops};
  if (avx2 && (wanted.empty() || wanted == "avx2")) return {"avx2+fma", cpu_avx2::make_ops};
#endif
  if (wanted == "avx512" || wanted == "avx2")
    throw DeviceError("ANDREA_CPU_PATH is " + wanted + ", but this processor or build does not have it");
  return {"baseline", cpu_baseline::make_ops};
}

}  // namespace andrea
