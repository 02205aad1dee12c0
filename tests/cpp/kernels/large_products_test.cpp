// Products large enough that the CUDA back end chooses their kernels by cost (gemm_costs.h) on Hopper:
// against the library's own choice, and against float64 at sampled elements.
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "backend_fixture.h"
#include "kernels/gemm_choices.h"

namespace andrea {
namespace {

using reference::Doubles;

struct Shape {
  std::int64_t rows, d, Vp;
};
const Shape kShapes[] = {{8192, 384, 4416}, {8192, 768, 8512}, {4096, 1536, 8512}};

class LargeProducts : public KernelTest {
 protected:
  // Elements of a sum over k: out[i, j] = sum_t a[i * row + t * step] b[j * row + t * step].
  struct Factors {
    const Doubles& a;
    const Doubles& b;
    std::int64_t a_row, a_step, b_row, b_step, k;
    double at(std::int64_t i, std::int64_t j) const {
      double sum = 0;
      for (std::int64_t t = 0; t < k; ++t) sum += a[i * a_row + t * a_step] * b[j * b_row + t * b_step];
      return sum;
    }
  };

  bool fp8() const { return GetParam().precision == Precision::kFp8; }
  // Of a stored number (or float32) after a long sum; FP8 adds in accumulators of 14 bits (fp8_test.cpp).
  Tolerance tolerance(bool float32) const { return {float32 ? 0 : 3 * unit(), fp8() ? 1.0 / 64 : 5e-4}; }

  // Corners, and elements all over out [m, n].
  void expect_sampled(const std::vector<float>& out, std::int64_t m, std::int64_t n, const Factors& factors,
                      const Doubles& addend, bool float32, const char* what) {
    std::vector<float> got;
    Doubles want;
    for (std::int64_t s = 0; s < 400; ++s) {
      const std::int64_t i = s == 0 ? 0 : s == 1 ? m - 1 : (s * 7919) % m;
      const std::int64_t j = s == 0 ? 0 : s == 1 ? n - 1 : (s * 104729) % n;
      got.push_back(out[i * n + j]);
      want.push_back(factors.at(i, j) + (addend.empty() ? 0 : addend[i * n + j]));
    }
    expect_close(got, want, tolerance(float32), what);
  }
};

TEST_P(LargeProducts, EqualTheLibrarysChoiceAndFloat64) {
  for (const auto& [rows, d, Vp] : kShapes) {
    SCOPED_TRACE(testing::Message() << "rows " << rows << " d " << d);
    const double width = 1 / std::sqrt(static_cast<double>(d));
    const std::vector<float> x_values = normal(rows * d), residual_values = normal(rows * d),
                             w_values = normal(3 * d * d, width), dy_values = normal(rows * 3 * d, 1e-2),
                             head_values = normal(Vp * d, width), before = normal(3 * d * d);
    std::map<std::string, std::vector<float>> plain;
    GemmChoices plain_choices;
    for (const bool portable : {true, false}) {
      const PortableKernels kernels(portable);
      open({1, rows, d, d / 64, 1, Vp, Vp, 64});
      const Acts x = acts(x_values), residual = acts(residual_values), w = acts(w_values),
                 dy = acts(dy_values), head = acts(head_values), qkv = poisoned_acts(rows * 3 * d),
                 out = poisoned_acts(rows * d), dx = poisoned_acts(rows * d),
                 logits = poisoned_acts(rows * Vp), dx_head = poisoned_acts(rows * d);
      std::map<std::string, std::vector<float>> results;
      for (const bool again : {false, true}) {
        const Floats dw = floats(before), dw_head = poisoned_floats(Vp * d);
        ops().k_attn_qkv_fwd(qkv, x, w, rows, d);
        ops().k_attn_out_fwd(out, x, w, residual, rows, d);  // the first d rows of w
        ops().k_attn_qkv_bwd(dx, dw, dy, x, w, rows, d, /*accumulate=*/true);
        ops().k_head_fwd(logits, x, head, rows, d, Vp);
        ops().k_head_bwd(dx_head, dw_head, logits, x, head, rows, d, Vp, /*accumulate=*/false);
        device().wait();
        const std::map<std::string, std::vector<float>> got = {
            {"qkv", read(qkv)},       {"out", read(out)},         {"dx", read(dx)},          {"dw", read(dw)},
            {"logits", read(logits)}, {"dx_head", read(dx_head)}, {"dw_head", read(dw_head)}};
        if (again)
          for (const auto& [name, values] : got) expect_same_bits(values, results[name], name.c_str());
        results = got;
      }
      if (portable) {
        plain = std::move(results);
        plain_choices = device().info().gemm;
        continue;
      }
      const bool hopper = device().info().arithmetic.find("sm 9.0") != std::string::npos &&
                          plain_choices.library.find("cuBLASLt 13.") == 0;
      EXPECT_EQ(gemm_differences(plain_choices, device().info().gemm).empty(), !hopper);
      for (const auto& [name, values] : results)
        expect_close(values, to_doubles(plain[name]), tolerance(name[0] == 'd' && name[1] == 'w'),
                     name.c_str());

      const Doubles x_all = doubles(x), w_all = doubles(w), dy_all = doubles(dy);
      const auto factor = [&](const Doubles& all) { return fp8() ? reference::fp8_factor(all) : all; };
      const Doubles x_in = factor(x_all), w_in = factor(w_all), dy_in = factor(dy_all);
      const Doubles w_o_in = factor({w_all.begin(), w_all.begin() + d * d});
      expect_sampled(results["qkv"], rows, 3 * d, {x_in, w_in, d, 1, d, 1, d}, {}, false, "qkv, sampled");
      expect_sampled(results["out"], rows, d, {x_in, w_o_in, d, 1, d, 1, d}, doubles(residual), false,
                     "out, sampled");
      expect_sampled(results["dx"], rows, d, {dy_in, w_in, 3 * d, 1, 1, d, 3 * d}, {}, false, "dx, sampled");
      expect_sampled(results["dw"], 3 * d, d, {dy_in, x_in, 1, 3 * d, 1, d, rows}, to_doubles(before), true,
                     "dw, sampled");
      const Doubles head_all = doubles(head), logits_all = doubles(logits);
      expect_sampled(results["logits"], rows, Vp, {x_all, head_all, d, 1, d, 1, d}, {}, false,
                     "logits, sampled");
      expect_sampled(results["dx_head"], rows, d, {logits_all, head_all, Vp, 1, 1, d, Vp}, {}, false,
                     "dx of the head, sampled");
      expect_sampled(results["dw_head"], Vp, d, {logits_all, x_all, 1, Vp, 1, d, rows}, {}, true,
                     "dw of the head, sampled");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, LargeProducts,
                         testing::Values(Target{"cuda", Precision::kFp16}, Target{"cuda", Precision::kBf16},
                                         Target{"cuda", Precision::kFp8}),
                         target_name);

}  // namespace
}  // namespace andrea
