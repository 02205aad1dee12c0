#include "kernels/cuda/gemm.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "engine/errors.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/gemm_costs.h"
#include "kernels/cuda/lt_library.h"

namespace andrea::cuda {
namespace {

constexpr std::size_t kKnownLibrary = 13;  // whose configurations gemm_costs.cpp names
constexpr int kHopperAlgorithm = 66;       // the library's kernels for sm_90

// cuBLASLt is column-major: it computes the transpose, out^T [n, m] = op(b) op(a), so b is its first operand.
struct Types {
  cudaDataType_t in;
  cudaDataType_t out;
  cublasComputeType_t compute;
};

bool is_fp8(GemmKind kind) {
  return kind == GemmKind::kForward8 || kind == GemmKind::kInput8 || kind == GemmKind::kWeight8;
}

Types types_of(Precision precision, bool allow_tf32, GemmKind kind) {
  if (is_fp8(kind))
    return {CUDA_R_8F_E4M3, kind == GemmKind::kWeight8 ? CUDA_R_32F : CUDA_R_16BF, CUBLAS_COMPUTE_32F};
  switch (precision) {
    case Precision::kFp16:
      return {CUDA_R_16F, kind == GemmKind::kWeight ? CUDA_R_32F : CUDA_R_16F, CUBLAS_COMPUTE_32F};
    case Precision::kBf16:
    case Precision::kFp8:  // what stays in 16 bits
      return {CUDA_R_16BF, kind == GemmKind::kWeight ? CUDA_R_32F : CUDA_R_16BF, CUBLAS_COMPUTE_32F};
    default:
      return {CUDA_R_32F, CUDA_R_32F, allow_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F};
  }
}

const char* type_name(cudaDataType_t type) {
  return type == CUDA_R_32F ? "fp32" : type == CUDA_R_16F ? "fp16" : type == CUDA_R_16BF ? "bf16" : "e4m3";
}

std::uint32_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer) | 256U;  // null counts as aligned to 256
  return static_cast<std::uint32_t>(address & (~address + 1));
}

template <typename T>
T algo_value(const cublasLtMatmulAlgo_t& algo, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  T value{};
  std::size_t written = 0;
  ANDREA_CUDA_CHECK(lt_library().algo_get(&algo, attribute, &value, sizeof value, &written));
  return value;
}

std::string text_of(const cublasLtMatmulAlgo_t& algo, std::size_t workspace) {
  const auto number = [&algo](auto type, cublasLtMatmulAlgoConfigAttributes_t attribute) {
    return std::to_string(algo_value<decltype(type)>(algo, attribute));
  };
  return "algo " + number(std::int32_t{}, CUBLASLT_ALGO_CONFIG_ID) + " tile " +
         number(std::uint32_t{}, CUBLASLT_ALGO_CONFIG_TILE_ID) + " stages " +
         number(std::uint32_t{}, CUBLASLT_ALGO_CONFIG_STAGES_ID) + " split-K " +
         number(std::int32_t{}, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) + " reduction " +
         number(std::uint32_t{}, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) + " workspace " +
         std::to_string(workspace) + " swizzle " +
         number(std::uint32_t{}, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING) + " option " +
         number(std::uint32_t{}, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION);
}

// cuBLASLt's first operand is our b.
void set_scales(cublasLtMatmulDesc_t desc, const Fp8Scales& scales) {
  const LtLibrary& lt = lt_library();
  ANDREA_CUDA_CHECK(lt.desc_set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &scales.b, sizeof scales.b));
  ANDREA_CUDA_CHECK(lt.desc_set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &scales.a, sizeof scales.a));
}

class Layout {
 public:
  Layout() = default;
  Layout(cudaDataType_t type, std::int64_t rows, std::int64_t cols) {
    ANDREA_CUDA_CHECK(lt_library().layout_create(&layout_, type, static_cast<std::uint64_t>(rows),
                                                 static_cast<std::uint64_t>(cols), rows));
  }
  ~Layout() {
    if (layout_ != nullptr) lt_library().layout_destroy(layout_);
  }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  Layout(Layout&& other) noexcept : layout_(std::exchange(other.layout_, nullptr)) {}
  Layout& operator=(Layout&& other) noexcept {
    std::swap(layout_, other.layout_);
    return *this;
  }
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

}  // namespace

struct GemmTable::Key {
  GemmKind kind;
  Epilogue epilogue;
  std::int64_t m, n, k;
  bool addend;
  std::uint32_t align_out, align_a, align_b;
  bool operator<(const Key& other) const {
    const auto all = [](const Key& key) {
      return std::tie(key.kind, key.epilogue, key.m, key.n, key.k, key.addend, key.align_out, key.align_a,
                      key.align_b);
    };
    return all(*this) < all(other);
  }
};

struct GemmTable::Plan {
  cublasLtMatmulDesc_t desc = nullptr;
  Layout a, b, out;
  cublasLtMatmulAlgo_t algo{};
  std::size_t workspace = 0;
  GemmChoice choice;
  Plan() = default;
  ~Plan() {
    if (desc != nullptr) lt_library().desc_destroy(desc);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
};

GemmTable::GemmTable(Precision precision, bool allow_tf32, int hopper_multiprocessors)
    : precision_(precision), allow_tf32_(allow_tf32), hopper_multiprocessors_(hopper_multiprocessors) {
  cublasLtHandle_t handle = nullptr;
  ANDREA_CUDA_CHECK(lt_library().create(&handle));
  handle_ = handle;
}

GemmTable::~GemmTable() { lt_library().destroy(static_cast<cublasLtHandle_t>(handle_)); }

void GemmTable::prefer_by_cost(const Key& key, Plan& plan) const {
  const LtLibrary& lt = lt_library();
  const Types types = types_of(precision_, allow_tf32_, key.kind);
  const auto alignment = std::min({key.align_out, key.align_a, key.align_b});
  if (hopper_multiprocessors_ == 0 || lt.get_version() / 10000 != kKnownLibrary || types.in == CUDA_R_32F ||
      algo_value<std::int32_t>(plan.algo, CUBLASLT_ALGO_CONFIG_ID) != kHopperAlgorithm ||
      key.epilogue != Epilogue::kNone || alignment < 16 || key.m % 8 + key.n % 8 + key.k % 8 != 0)
    return;
  GemmCosts costs{};
  switch (key.kind) {
    case GemmKind::kForward:
      costs = key.addend ? GemmCosts::kForwardAdd : GemmCosts::kForward;
      break;
    case GemmKind::kInput:
      costs = GemmCosts::kInput;
      break;
    case GemmKind::kWeight:
      costs = GemmCosts::kWeight;
      break;
    case GemmKind::kForward8:
      costs = key.addend ? GemmCosts::kForwardAdd8 : GemmCosts::kForward8;
      break;
    default:
      return;
  }
  const auto better =
      better_configuration(costs, key.m, key.n, key.k, hopper_multiprocessors_,
                           algo_value<std::uint32_t>(plan.algo, CUBLASLT_ALGO_CONFIG_TILE_ID),
                           algo_value<std::int32_t>(plan.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM));
  if (!better) return;
  cublasLtMatmulAlgo_t algo{};
  const auto handle = static_cast<cublasLtHandle_t>(handle_);
  const auto set = [&](cublasLtMatmulAlgoConfigAttributes_t attribute, const auto& value) {
    return lt.algo_set(&algo, attribute, &value, sizeof value) == CUBLAS_STATUS_SUCCESS;
  };
  const std::uint32_t stages =
      is_fp8(key.kind) ? CUBLASLT_MATMUL_STAGES_128xAUTO : CUBLASLT_MATMUL_STAGES_64xAUTO;
  const std::uint32_t reduction =
      better->split_k > 1 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
  cublasLtMatmulHeuristicResult_t result{};
  if (lt.algo_init(handle, types.compute, CUDA_R_32F, types.in, types.in, types.out, types.out,
                   kHopperAlgorithm, &algo) != CUBLAS_STATUS_SUCCESS ||
      !set(CUBLASLT_ALGO_CONFIG_TILE_ID, better->tile) || !set(CUBLASLT_ALGO_CONFIG_STAGES_ID, stages) ||
      !set(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, better->split_k) ||
      !set(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, reduction) ||
      !set(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, better->option) ||
      !set(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, better->cluster) ||
      lt.algo_check(handle, plan.desc, plan.b.get(), plan.a.get(), plan.out.get(), plan.out.get(), &algo,
                    &result) != CUBLAS_STATUS_SUCCESS ||
      result.workspaceSize > kGemmWorkspaceBytes)
    return;
  plan.algo = algo;
  plan.workspace = result.workspaceSize;
}

const GemmTable::Plan* GemmTable::resolve(const Key& key, const void* aux, const Fp8Scales& scales) {
  if (const auto found = plans_.find(key); found != plans_.end()) return found->second.get();
  const LtLibrary& lt = lt_library();
  const Types types = types_of(precision_, allow_tf32_, key.kind);
  auto plan = std::make_unique<Plan>();

  const bool fp8 = is_fp8(key.kind);
  const cublasOperation_t op_b = fp8 || key.kind == GemmKind::kForward ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t op_a = key.kind == GemmKind::kWeight ? CUBLAS_OP_T : CUBLAS_OP_N;
  ANDREA_CUDA_CHECK(lt.desc_create(&plan->desc, types.compute, CUDA_R_32F));
  ANDREA_CUDA_CHECK(lt.desc_set(plan->desc, CUBLASLT_MATMUL_DESC_TRANSA, &op_b, sizeof op_b));
  ANDREA_CUDA_CHECK(lt.desc_set(plan->desc, CUBLASLT_MATMUL_DESC_TRANSB, &op_a, sizeof op_a));
  plan->b = op_b == CUBLAS_OP_T ? Layout(types.in, key.k, key.n) : Layout(types.in, key.n, key.k);
  plan->a = op_a == CUBLAS_OP_T ? Layout(types.in, key.m, key.k) : Layout(types.in, key.k, key.m);
  plan->out = Layout(types.out, key.n, key.m);
  if (fp8) {
    const std::int8_t fast = key.kind == GemmKind::kForward8 ? 1 : 0;
    ANDREA_CUDA_CHECK(lt.desc_set(plan->desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast));
    set_scales(plan->desc, scales);
  }
  if (key.epilogue != Epilogue::kNone) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DGELU;
    ANDREA_CUDA_CHECK(lt.desc_set(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    ANDREA_CUDA_CHECK(lt.desc_set(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &key.n, sizeof key.n));
    ANDREA_CUDA_CHECK(lt.desc_set(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux));
  }

  cublasLtMatmulPreference_t preference = nullptr;
  ANDREA_CUDA_CHECK(lt.preference_create(&preference));
  const auto destroy = [&lt](cublasLtMatmulPreference_t p) { lt.preference_destroy(p); };
  const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>, decltype(destroy)> guard(
      preference, destroy);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    ANDREA_CUDA_CHECK(lt.preference_set(preference, attribute, &value, sizeof value));
  };
  const std::size_t workspace = kGemmWorkspaceBytes;
  // Split sums go through the workspace in float32 and are added in a second, ordered stage.
  const std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.align_b);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.align_a);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.align_out);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.align_out);

  constexpr int kCandidates = 16;
  cublasLtMatmulHeuristicResult_t results[kCandidates] = {};
  int found = 0;
  const cublasStatus_t asked =
      lt.get_heuristic(static_cast<cublasLtHandle_t>(handle_), plan->desc, plan->b.get(), plan->a.get(),
                       plan->out.get(), plan->out.get(), preference, kCandidates, results, &found);
  if (asked == CUBLAS_STATUS_NOT_SUPPORTED)
    found = 0;
  else
    ANDREA_CUDA_CHECK(asked);
  const char* kinds[] = {"x W^T", "dy W", "dy^T x", "x W^T", "dy W", "dy^T x"};
  const char* epilogues[] = {"", " gelu'"};
  const std::string shape = std::string(kinds[static_cast<int>(key.kind)]) + " " + std::to_string(key.m) +
                            " x " + std::to_string(key.n) + " x " + std::to_string(key.k) +
                            (key.addend ? " + C" : "") + epilogues[static_cast<int>(key.epilogue)];
  for (int i = 0; i < found; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = results[i];
    if (result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > workspace) continue;
    if ((algo_value<std::uint32_t>(result.algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) & ~reductions) != 0)
      continue;
    plan->algo = result.algo;
    plan->workspace = result.workspaceSize;
    prefer_by_cost(key, *plan);
    plan->choice.product = shape + ", " + type_name(types.in) + " to " + type_name(types.out) +
                           (types.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? " by TF32" : "") + ", aligned " +
                           std::to_string(key.align_out) + " " + std::to_string(key.align_a) + " " +
                           std::to_string(key.align_b);
    plan->choice.algorithm = text_of(plan->algo, plan->workspace);
    return plans_.emplace(key, std::move(plan)).first->second.get();
  }
  if (key.epilogue != Epilogue::kNone) return plans_.emplace(key, nullptr).first->second.get();
  throw DeviceError(version() + " has no deterministic algorithm for " + shape + " in " +
                    type_name(types.in) + " on this GPU; " +
                    (fp8 ? "use fp16 or bf16" : "sizes that are multiples of 8 are always supported"));
}

void GemmTable::run(const Plan& plan, void* out, const void* a, const void* b, const void* addend,
                    void* workspace, cudaStream_t stream) {
  const float alpha = 1.0F;
  const float beta = addend != nullptr ? 1.0F : 0.0F;
  const void* c = addend != nullptr ? addend : out;
  ANDREA_CUDA_CHECK(lt_library().matmul(static_cast<cublasLtHandle_t>(handle_), plan.desc, &alpha, b,
                                        plan.b.get(), a, plan.a.get(), &beta, c, plan.out.get(), out,
                                        plan.out.get(), &plan.algo, workspace, kGemmWorkspaceBytes, stream));
}

void GemmTable::multiply(GemmKind kind, void* out, const void* a, const void* b, const void* addend,
                         std::int64_t m, std::int64_t n, std::int64_t k, void* workspace,
                         cudaStream_t stream) {
  const std::uint32_t align_out = std::min(alignment_of(out), alignment_of(addend));
  const Key key{kind,           Epilogue::kNone, m, n, k, addend != nullptr, align_out, alignment_of(a),
                alignment_of(b)};
  run(*resolve(key, nullptr, {}), out, a, b, addend, workspace, stream);
}

void GemmTable::multiply_fp8(GemmKind kind, void* out, const void* a, const void* b, const Fp8Scales& scales,
                             const void* addend, std::int64_t m, std::int64_t n, std::int64_t k,
                             void* workspace, cudaStream_t stream) {
  const std::uint32_t align_out = std::min(alignment_of(out), alignment_of(addend));
  const Key key{kind,           Epilogue::kNone, m, n, k, addend != nullptr, align_out, alignment_of(a),
                alignment_of(b)};
  const Plan* plan = resolve(key, nullptr, scales);
  set_scales(plan->desc, scales);
  run(*plan, out, a, b, addend, workspace, stream);
}

bool GemmTable::multiply_with(Epilogue epilogue, const void* aux, GemmKind kind, void* out, const void* a,
                              const void* b, std::int64_t m, std::int64_t n, std::int64_t k, void* workspace,
                              cudaStream_t stream) {
  const std::uint32_t align_out = std::min(alignment_of(out), alignment_of(aux));
  const Plan* plan =
      resolve(Key{kind, epilogue, m, n, k, false, align_out, alignment_of(a), alignment_of(b)}, aux, {});
  if (plan == nullptr) return false;
  ANDREA_CUDA_CHECK(
      lt_library().desc_set(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux));
  run(*plan, out, a, b, nullptr, workspace, stream);
  return true;
}

GemmChoices GemmTable::choices() const {
  GemmChoices all;
  all.library = version();
  for (const auto& entry : plans_)
    if (entry.second != nullptr) all.products.push_back(entry.second->choice);
  std::sort(all.products.begin(), all.products.end(),
            [](const GemmChoice& a, const GemmChoice& b) { return a.product < b.product; });
  return all;
}

std::string GemmTable::version() const {
  const std::size_t v = lt_library().get_version();
  return "cuBLASLt " + std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." +
         std::to_string(v % 100);
}

}  // namespace andrea::cuda
