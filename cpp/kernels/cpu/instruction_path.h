// Which compiled copy of the operations this processor runs.
#pragma once

#include <string>

#include "kernels/cpu/openblas.h"
#include "kernels/ops.h"

namespace andrea {

/// What the operations of one back end are made with.
struct CpuSettings {
  int threads;
  SgemmFunction sgemm;
};

struct InstructionPath {
  const char* name;                      ///< "avx512", "avx2+fma", "baseline"
  Ops* (*make_ops)(const CpuSettings&);  ///< caller owns
};

/// The widest path the processor has, or the one named by $ANDREA_CPU_PATH (avx512, avx2, baseline).
/// Throws ConfigError if that is unknown, DeviceError if the processor lacks it.
InstructionPath choose_instruction_path();

}  // namespace andrea
