#include "kernels/cuda/gemm_costs.h"

#include <cstddef>

namespace andrea::cuda {
namespace {

struct Kernel {
  GemmConfiguration configuration;
  std::int64_t columns, rows;  // of a tile of out; the library, column-major, calls them rows and columns
  double launch;               // microseconds once
  double tile, slope;          // of a wave: once, and for each of the k products that it sums
};

// One H200, cuBLASLt 13.1, bfloat16 and FP8, d_model 384 to 2048 with 8192 rows; fitted within 2 to 7 %.
constexpr Kernel kForward[] = {
    {{24, 1, 7, 5}, 256, 128, 7.22, 1.159, 0.00953},  {{209, 1, 6, 5}, 192, 192, 7.23, 1.233, 0.01093},
    {{248, 1, 7, 5}, 320, 128, 3.91, 2.278, 0.01214}, {{31, 1, 7, 5}, 192, 128, 5.70, 1.203, 0.00724},
    {{23, 1, 4, 3}, 128, 256, 7.59, 1.069, 0.00953},  {{201, 1, 2, 5}, 176, 128, 4.35, 0.584, 0.00639},
    {{20, 1, 3, 5}, 128, 128, 4.60, 0.392, 0.00485},  {{184, 1, 2, 5}, 144, 128, 2.84, 0.688, 0.00525},
};
constexpr Kernel kForwardAdd[] = {
    {{24, 1, 7, 5}, 256, 128, 5.35, 2.968, 0.00942}, {{31, 1, 7, 5}, 192, 128, 6.06, 1.418, 0.00725},
    {{23, 1, 4, 3}, 128, 256, 4.90, 3.213, 0.00937}, {{20, 1, 3, 5}, 128, 128, 5.38, 0.744, 0.00479},
    {{33, 1, 3, 5}, 128, 96, 5.94, 0.336, 0.00380},
};
constexpr Kernel kInput[] = {
    {{24, 1, 7, 5}, 256, 128, 4.62, 1.564, 0.00962}, {{248, 1, 7, 5}, 320, 128, 5.34, 1.528, 0.01222},
    {{31, 1, 7, 5}, 192, 128, 4.71, 1.033, 0.00739}, {{23, 1, 4, 3}, 128, 256, 4.49, 1.682, 0.00961},
    {{458, 1, 3, 5}, 192, 96, 5.17, 0.328, 0.00545}, {{20, 1, 3, 5}, 128, 128, 5.07, 0.118, 0.00503},
    {{33, 1, 3, 5}, 128, 96, 4.87, 0.266, 0.00391},  {{29, 1, 1, 3}, 128, 160, 5.42, 0.095, 0.00614},
};
constexpr Kernel kWeight[] = {
    {{23, 1, 4, 3}, 128, 256, 0.31, 0, 0.00993}, {{209, 1, 6, 5}, 192, 192, 0, 0, 0.01124},
    {{24, 1, 5, 3}, 256, 128, 1.82, 0, 0.00966}, {{32, 1, 4, 3}, 128, 192, 0, 0, 0.00768},
    {{31, 1, 7, 5}, 192, 128, 0, 0, 0.00767},    {{458, 1, 3, 5}, 192, 96, 1.02, 0, 0.00577},
    {{29, 1, 1, 3}, 128, 160, 0.92, 0, 0.00633}, {{20, 1, 3, 5}, 128, 128, 1.41, 0, 0.00506},
    {{33, 1, 3, 7}, 128, 96, 0, 0, 0.00410},     {{17, 1, 0, 3}, 64, 128, 0, 0, 0.00316},
    {{27, 1, 2, 9}, 96, 64, 0.81, 0, 0.00259},   {{15, 1, 3, 9}, 64, 64, 3.27, 0, 0.00174},
    {{458, 4, 3, 5}, 192, 96, 1.75, 0, 0.00221}, {{20, 4, 3, 2}, 128, 128, 2.67, 0, 0.00173},
};
constexpr Kernel kForward8[] = {
    {{24, 1, 7, 5}, 256, 128, 8.24, 1.074, 0.00486},  {{209, 1, 6, 5}, 192, 192, 8.28, 1.356, 0.00554},
    {{407, 1, 1, 3}, 128, 152, 8.85, 0.054, 0.00272}, {{31, 1, 7, 5}, 192, 128, 9.51, 0.328, 0.00410},
    {{20, 1, 3, 5}, 128, 128, 7.38, 0.101, 0.00246},
};
constexpr Kernel kForwardAdd8[] = {
    {{24, 1, 7, 5}, 256, 128, 0, 6.320, 0.00453},
    {{31, 1, 7, 5}, 192, 128, 7.24, 1.907, 0.00358},
    {{407, 1, 1, 3}, 128, 152, 7.00, 0.734, 0.00261},
    {{20, 1, 3, 5}, 128, 128, 7.35, 0.547, 0.00237},
};

template <std::size_t N>
std::optional<GemmConfiguration> best_of(const Kernel (&kernels)[N], std::int64_t m, std::int64_t n,
                                         std::int64_t k, int multiprocessors, std::uint32_t library_tile,
                                         std::int32_t library_split) {
  const auto pieces = [](std::int64_t size, std::int64_t piece) { return (size + piece - 1) / piece; };
  const auto microseconds = [&](const Kernel& kernel) {
    const std::int64_t tiles =
        pieces(n, kernel.columns) * pieces(m, kernel.rows) * kernel.configuration.split_k;
    const auto waves = static_cast<double>(pieces(tiles, multiprocessors));
    return kernel.launch + waves * (kernel.tile + kernel.slope * static_cast<double>(k));
  };
  const Kernel* best = nullptr;
  const Kernel* library = nullptr;
  for (const Kernel& kernel : kernels) {
    if (kernel.configuration.tile == library_tile && kernel.configuration.split_k == library_split)
      library = &kernel;
    if (best == nullptr || microseconds(kernel) < microseconds(*best)) best = &kernel;
  }
  constexpr double kWorthwhile = 0.985;  // less is within the fit's error
  if (library == nullptr || microseconds(*best) >= kWorthwhile * microseconds(*library)) return std::nullopt;
  return best->configuration;
}

}  // namespace

std::optional<GemmConfiguration> better_configuration(GemmCosts costs, std::int64_t m, std::int64_t n,
                                                      std::int64_t k, int multiprocessors,
                                                      std::uint32_t library_tile,
                                                      std::int32_t library_split) {
  // Timed alone, short sums with an addend gain; within a step they lose (docs/PERFORMANCE.md).
  constexpr std::int64_t kShortSum = 1024;
  if ((costs == GemmCosts::kForwardAdd || costs == GemmCosts::kForwardAdd8) && k < kShortSum)
    return std::nullopt;
  // Below about this size the launch decides, and nothing was measured.
  if (static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) < 1e9) return std::nullopt;
  const auto best = [&](const auto& kernels) {
    return best_of(kernels, m, n, k, multiprocessors, library_tile, library_split);
  };
  switch (costs) {
    case GemmCosts::kForward:
      return best(kForward);
    case GemmCosts::kForwardAdd:
      return best(kForwardAdd);
    case GemmCosts::kInput:
      return best(kInput);
    case GemmCosts::kWeight:
      return best(kWeight);
    case GemmCosts::kForward8:
      return best(kForward8);
    case GemmCosts::kForwardAdd8:
      return best(kForwardAdd8);
  }
  return std::nullopt;
}

}  // namespace andrea::cuda
