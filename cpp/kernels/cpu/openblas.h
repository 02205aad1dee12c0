// OpenBLAS, loaded privately: its symbols are seen by nobody else, and nobody else's thread settings by it.
#pragma once

#include <string>

namespace andrea {

/// cblas_sgemm; order and transposition as in the CBLAS enumerations.
using SgemmFunction = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                               const float* a, int lda, const float* b, int ldb, float beta, float* c,
                               int ldc);

struct OpenBlas {
  SgemmFunction sgemm;
  std::string path;      ///< the file that was loaded
  std::string identity;  ///< "OpenBLAS 0.3.30 Zen": name, version and the core its kernels are for
};

/// Loads it on the first call and sets it to one thread: parallelism is ours, over fixed tiles. Looks at
/// $ANDREA_OPENBLAS, beside this program or module, and where it was when this was built. Throws DeviceError.
const OpenBlas& openblas();

}  // namespace andrea
