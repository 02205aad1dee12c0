// The rules that plan a GPU which is not here, beside what the CUDA back end itself asks for.
#include "kernels/cuda/memory_rule.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/errors.h"
#include "kernels/backend.h"

#ifdef ANDREA_WITH_CUDA
namespace andrea::cuda {  // of cuda_ops.h, which only the CUDA compiler reads
std::size_t embed_bwd_scratch(std::int64_t rows, std::int64_t d, std::int64_t V);
std::size_t layernorm_bwd_scratch(std::int64_t d);
std::size_t attn_bwd_scratch(std::int64_t B, std::int64_t T, std::int64_t H);
}  // namespace andrea::cuda
#endif

namespace andrea {
namespace {

const Extent kExtents[] = {{1, 1, 8, 1, 1, 2, 64, 1000},
                           {8, 1024, 384, 12, 6, 4353, 4416, 12'000'000},
                           {3, 77, 40, 5, 2, 301, 320, 99'999},
                           {512, 1024, 384, 12, 6, 4353, 4416, 12'000'000},
                           {64, 2048, 4096, 64, 1, 50257, 50304, 400'000'000},
                           {4096, 1024, 64, 64, 1, 300, 320, 4096}};

TEST(CudaMemoryRule, GrowsWithTheBatchAndNeverBelowTheProductsWorkspace) {
  for (Extent e : kExtents) {
    const std::int64_t bytes = cuda::scratch_bytes_by_rule(e, Precision::kFp16);
    EXPECT_GE(bytes, static_cast<std::int64_t>(cuda::kGemmWorkspaceBytes));
    e.batch *= 64;
    EXPECT_GE(cuda::scratch_bytes_by_rule(e, Precision::kFp16), bytes);
  }
  EXPECT_EQ(cuda::grad_norm_partials_by_rule(0), 1);
  EXPECT_EQ(cuda::grad_norm_partials_by_rule(4097), 2);
  EXPECT_EQ(cuda::grad_norm_partials_by_rule(std::int64_t{1} << 40), 1056);
}

#ifdef ANDREA_WITH_CUDA
TEST(CudaMemoryRule, IsWhatTheKernelsAskFor) {
  for (const Extent& e : kExtents) {
    const std::int64_t rows = e.batch * e.context;
    const std::size_t asked = std::max(
        {cuda::kGemmWorkspaceBytes, cuda::embed_bwd_scratch(rows, e.d_model, e.vocab),
         cuda::layernorm_bwd_scratch(e.d_model), cuda::attn_bwd_scratch(e.batch, e.context, e.n_head)});
    EXPECT_EQ(cuda::scratch_bytes_by_rule(e, Precision::kFp16), static_cast<std::int64_t>(asked))
        << "batch " << e.batch << " d_model " << e.d_model;
  }
}
#endif

TEST(CudaMemoryRule, IsWhatTheBackEndTakesOnTheGpu_cuda) {
  for (const Precision precision : {Precision::kFp32, Precision::kFp16, Precision::kBf16, Precision::kFp8}) {
    Backend backend;
    try {
      backend = make_backend({"cuda", precision, false, 0});
    } catch (const std::exception& error) {
      GTEST_SKIP() << error.what();
    }
    for (Extent e : kExtents) {
      for (const bool keep : {true, false}) {
        e.keep_factors = keep;
        EXPECT_EQ(static_cast<std::int64_t>(backend.ops->kept_bytes(e)),
                  cuda::kept_bytes_by_rule(e, precision));
      }
      EXPECT_EQ(static_cast<std::int64_t>(backend.ops->scratch_bytes(e)),
                cuda::scratch_bytes_by_rule(e, precision));
      EXPECT_EQ(backend.ops->grad_norm_partials(e.n_params), cuda::grad_norm_partials_by_rule(e.n_params));
    }
    EXPECT_EQ(static_cast<std::int64_t>(backend.ops->act_bytes()), cuda::activation_bytes(precision));
    EXPECT_EQ(backend.device->steps_in_flight(), cuda::kStepsInFlight);
  }
}

}  // namespace
}  // namespace andrea
