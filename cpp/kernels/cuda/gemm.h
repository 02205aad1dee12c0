// Matrix products by cuBLASLt. One table: for each shape the descriptors, the algorithm and its workspace are
// resolved once, by the library's heuristic or on Hopper by gemm_costs.h (rules, never a timing), and kept.
// Only algorithms whose sums have a fixed order are allowed, so equal tables mean equal bits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "kernels/cuda/memory_rule.h"
#include "kernels/gemm_choices.h"
#include "kernels/ops.h"

namespace andrea::cuda {

/// How the operands of a product lie in memory. Row-major, in the terms of a linear layer y = x W^T.
enum class GemmKind {
  kForward,  ///< out [m, n] = a [m, k] b [n, k]^T : y = x W^T
  kInput,    ///< out [m, n] = a [m, k] b [k, n]   : dx = dy W
  kWeight,   ///< out [m, n] = a [k, m]^T b [k, n] : dW = dy^T x, out is float32
  // E4M3 factors, both with the summed index last: out [m, n] = a [m, k] b [n, k]^T.
  kForward8,  ///< out is bfloat16; sums in the tensor cores' own accumulators, as is usual forward
  kInput8,    ///< out is bfloat16; partial sums are promoted to float32
  kWeight8,   ///< the same, and out is float32
};

/// Device memory with what an FP8 factor is to be multiplied by, for a and for b.
struct Fp8Scales {
  const float* a;
  const float* b;
};

/// What is done to the sums before they are stored.
enum class Epilogue {
  kNone,
  kGeluBackward,  ///< out = product * gelu'(aux)
};

class GemmTable {
 public:
  /// Products of `precision` operands; float32 operands are multiplied in TF32 only if `allow_tf32`.
  /// hopper_multiprocessors: those of a GPU that gemm_costs.h knows; 0 leaves every choice to the library.
  GemmTable(Precision precision, bool allow_tf32, int hopper_multiprocessors);
  ~GemmTable();
  GemmTable(const GemmTable&) = delete;
  GemmTable& operator=(const GemmTable&) = delete;

  /// out = product + addend. `addend` may be null, another array, or out itself (accumulation). `workspace`
  /// has workspace_bytes(kind).
  void multiply(GemmKind kind, void* out, const void* a, const void* b, const void* addend, std::int64_t m,
                std::int64_t n, std::int64_t k, void* workspace, cudaStream_t stream);

  /// A product of FP8 factors (kForward8 and so on). m, n and k are multiples of 16, arrays aligned to 16
  /// bytes.
  void multiply_fp8(GemmKind kind, void* out, const void* a, const void* b, const Fp8Scales& scales,
                    const void* addend, std::int64_t m, std::int64_t n, std::int64_t k, void* workspace,
                    cudaStream_t stream);

  /// A product with an epilogue; false, and nothing done, if the library has no algorithm for it.
  bool multiply_with(Epilogue epilogue, const void* aux, GemmKind kind, void* out, const void* a,
                     const void* b, std::int64_t m, std::int64_t n, std::int64_t k, void* workspace,
                     cudaStream_t stream);

  /// The products resolved so far.
  GemmChoices choices() const;
  /// "cuBLASLt 13.0.2".
  std::string version() const;

 private:
  struct Key;
  struct Plan;
  /// Puts what gemm_costs.h prefers to plan.algo in its place, if the library has it.
  void prefer_by_cost(const Key& key, Plan& plan) const;
  const Plan* resolve(const Key& key, const void* aux, const Fp8Scales& scales);
  void run(const Plan& plan, void* out, const void* a, const void* b, const void* addend, void* workspace,
           cudaStream_t stream);

  Precision precision_;
  bool allow_tf32_;
  int hopper_multiprocessors_;
  void* handle_ = nullptr;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace andrea::cuda
