// cuBLASLt, opened at run time: one build then runs on machines with and without the library, and it does
// not matter whether it came with the CUDA toolkit or as the wheel nvidia-cublas.
#pragma once

#include <cublasLt.h>

#include <string>

namespace andrea::cuda {

/// The functions of cuBLASLt that the GEMM table calls.
struct LtLibrary {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtGetVersion) get_version;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic;
  decltype(&cublasLtMatmulAlgoInit) algo_init;
  decltype(&cublasLtMatmulAlgoCheck) algo_check;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) algo_get;
  decltype(&cublasLtMatmulAlgoConfigSetAttribute) algo_set;
  std::string path;  ///< file it was opened from
};

/// The library, opened on the first call and kept until the process ends. Looked for, in this order, at
/// $ANDREA_CUBLASLT, on the loader's path, beside this program or module (../nvidia/cu13/lib), where CMake
/// saw it. Throws DeviceError that says what to install.
const LtLibrary& lt_library();

}  // namespace andrea::cuda
