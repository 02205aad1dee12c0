// The kernels that FP8 adds, called directly: every cast number, every largest magnitude, bit by bit. Built
// with the CUDA back end only.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "backend_fixture.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/fp8.h"

namespace andrea {
namespace {

using cuda::Absmax;
using bf16 = __nv_bfloat16;

std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

float largest_of(const std::vector<float>& values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

// E4M3's code of a finite number.
unsigned char e4m3_code(float x) {
  const double size = std::fabs(reference::e4m3(x));
  int exponent = size == 0 ? -6 : std::max(-6, std::ilogb(size));
  const int steps = static_cast<int>(std::ldexp(size, 3 - exponent));  // 8 to 15, or less below 2^-6
  const int code = steps < 8 ? steps : (exponent + 7) * 8 + steps - 8;
  return static_cast<unsigned char>(code | (std::signbit(x) ? 0x80 : 0));
}

// bfloat16 operations that leave the largest magnitude of whatever they write in one slot.
class WatchedOps final : public cuda::CudaOps<bf16> {
 public:
  explicit WatchedOps(cuda::CudaDevice& device) : CudaOps(device, Precision::kBf16) {}
  Absmax* slot = nullptr;

 protected:
  Absmax* absmax_of(const act_t*) override { return slot; }
};

class Fp8Kernels : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (!IsSkipped()) open_with_slot({4, 512, 256, 8, 1, 8, 64, 1 << 20});
  }
  void TearDown() override {
    slot_.reset();
    counter_.reset();
  }

  // A fresh back end, and the slot and the counter in its memory.
  void open_with_slot(const Extent& extent) {
    slot_.reset();
    counter_.reset();
    open(extent);
    slot_ = std::make_unique<Array<Absmax>>(array<Absmax>(1));
    counter_ = std::make_unique<Array<std::uint32_t>>(array<std::uint32_t>(1));
    set_slot({});
    const std::uint32_t zero = 0;
    counter_->memory.write(&zero);
  }

  cuda::CudaDevice& gpu() { return dynamic_cast<cuda::CudaDevice&>(device()); }
  cudaStream_t stream() { return gpu().stream(); }
  Absmax* slot() { return *slot_; }
  std::uint32_t* counter() { return *counter_; }
  void set_slot(const Absmax& value) { slot_->memory.write(&value); }
  std::uint32_t count() {
    std::uint32_t value;
    counter_->memory.read(&value);
    return value;
  }

  static const bf16* numbers(const Acts& values) { return reinterpret_cast<const bf16*>(values.data()); }
  static bf16* numbers(Acts& values) { return reinterpret_cast<bf16*>(values.data()); }

  // The slot is that of `values`; then it is zero for the next kernel.
  void expect_largest(const std::vector<float>& values, const char* what) {
    device().wait();
    Absmax got;
    slot_->memory.read(&got);
    EXPECT_EQ(got.bits, bits_of(largest_of(values))) << what << ": " << largest_of(values);
    set_slot({});
  }

 private:
  std::unique_ptr<Array<Absmax>> slot_;
  std::unique_ptr<Array<std::uint32_t>> counter_;
};

TEST_P(Fp8Kernels, CastsEveryNumberPlainAndTransposed) {
  const std::pair<std::int64_t, std::int64_t> shapes[] = {{16, 16},  {128, 64}, {144, 80},
                                                          {16, 528}, {272, 16}, {384, 256}};
  for (const auto& [rows, cols] : shapes)
    for (const int way : {1, 2, 3}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << cols << " way " << way);
      // Magnitudes from far below E4M3's smallest to its largest, after scaling by 2^3.
      std::vector<float> values = normal(rows * cols);
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = std::ldexp(std::copysign(1 + std::fmod(std::fabs(values[i]), 0.75F), values[i]),
                               static_cast<int>(i % 19) - 13);
      values[5] = 0.0F;
      Acts x = acts(values);
      const std::vector<float> stored = read(x);
      set_slot({bits_of(56.0F)});
      Array<cuda::fp8_t> plain = array<cuda::fp8_t>(rows * cols), turned = array<cuda::fp8_t>(rows * cols);
      const Floats inverse_scale = poisoned_floats(1);
      cuda::cast_to_fp8({(way & 1) != 0 ? plain.data() : nullptr, (way & 2) != 0 ? turned.data() : nullptr,
                         inverse_scale.data()},
                        numbers(x), slot(), counter(), rows, cols, stream());
      device().wait();
      EXPECT_EQ(read(inverse_scale)[0], 0.125F);
      std::vector<cuda::fp8_t> got(rows * cols);
      if ((way & 1) != 0) {
        plain.memory.read(got.data());
        for (std::int64_t i = 0; i < rows * cols; ++i)
          ASSERT_EQ(got[i], e4m3_code(stored[i] * 8)) << i << ": " << stored[i];
      }
      if ((way & 2) != 0) {
        turned.memory.read(got.data());
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t c = 0; c < cols; ++c)
            ASSERT_EQ(got[c * rows + r], e4m3_code(stored[r * cols + c] * 8)) << r << " " << c;
      }
      EXPECT_EQ(count(), 0U);
    }
}

TEST_P(Fp8Kernels, CastsSaturateCountAndKeepNan) {
  const std::int64_t rows = 32, cols = 48;
  std::vector<float> values(rows * cols, 1.0F);
  values[3] = 449.0F, values[700] = -1e9F, values[900] = std::numeric_limits<float>::infinity();
  values[901] = std::numeric_limits<float>::quiet_NaN(), values[1535] = 448.0F;
  values[4] = 450.0F;  // bfloat16 holds 448 and 450, not 449
  const Acts x = acts(values);
  set_slot({bits_of(448.0F)});
  Array<cuda::fp8_t> plain = array<cuda::fp8_t>(rows * cols);
  const Floats inverse_scale = poisoned_floats(1);
  cuda::cast_to_fp8({plain, nullptr, inverse_scale}, numbers(x), slot(), counter(), rows, cols, stream());
  device().wait();
  std::vector<cuda::fp8_t> got(rows * cols);
  plain.memory.read(got.data());
  EXPECT_EQ(got[3], 0x7e);
  EXPECT_EQ(got[4], 0x7e);
  EXPECT_EQ(got[700], 0xfe);
  EXPECT_EQ(got[901] & 0x7f, 0x7f);
  EXPECT_EQ(got[1535], 0x7e);
  EXPECT_EQ(got[0], 0x38);
  const std::uint32_t beyond = read(x)[3] > 448 ? 4 : 3;
  EXPECT_EQ(count(), beyond);
  // The count goes into the step's status, and begins anew.
  Array<std::int32_t> total = array<std::int32_t>(1);
  cuda::take_count(total, counter(), stream());
  device().wait();
  std::int32_t taken;
  total.memory.read(&taken);
  EXPECT_EQ(taken, static_cast<std::int32_t>(beyond));
  EXPECT_EQ(count(), 0U);
}

TEST_P(Fp8Kernels, ScalesAreTheLargestPowersOfTwoThatSaturateNothing) {
  const Acts x = acts(std::vector<float>(256, 0.0F));
  Array<cuda::fp8_t> plain = array<cuda::fp8_t>(256);
  const auto inverse_scale_of = [&](float largest) {
    const Floats inverse_scale = poisoned_floats(1);
    set_slot({bits_of(largest)});
    cuda::cast_to_fp8({plain, nullptr, inverse_scale}, numbers(x), slot(), counter(), 16, 16, stream());
    device().wait();
    return read(inverse_scale)[0];
  };
  for (const float largest :
       {448.0F, 450.0F, 1.75F, 1.765625F, 1.0F, 3e38F, 1e-30F, 1.17549435e-38F, 1e-39F}) {
    SCOPED_TRACE(largest);
    const float inverse = inverse_scale_of(largest);
    int exponent;
    EXPECT_EQ(std::frexp(inverse, &exponent), 0.5F) << "no power of two";
    EXPECT_LE(largest / inverse, 448.0F);
    if (exponent > -125) {  // 2^-126 is the smallest whose inverse is a float
      EXPECT_GT(2 * largest / inverse, 448.0F);
    }
  }
  EXPECT_EQ(inverse_scale_of(0.0F), 1.0F);
  EXPECT_TRUE(std::isnan(inverse_scale_of(std::numeric_limits<float>::infinity())));
  EXPECT_TRUE(std::isnan(inverse_scale_of(std::numeric_limits<float>::quiet_NaN())));
}

TEST_P(Fp8Kernels, CastsGeluAsItWouldCastWhatGeluWrites) {
  for (const auto& [rows, cols] : {std::pair{16, 16}, {144, 80}, {272, 512}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << cols);
    const std::int64_t n = rows * cols;
    const Acts h = acts(normal(n, 2.0));
    Acts g = poisoned_acts(n);
    cuda::gelu_with_absmax(numbers(g), slot(), numbers(h), n, stream());
    std::vector<cuda::fp8_t> want[2], got[2];
    for (std::vector<cuda::fp8_t>* casts : {want, got}) {
      Array<cuda::fp8_t> plain = array<cuda::fp8_t>(n), turned = array<cuda::fp8_t>(n);
      const Floats inverse_scale = poisoned_floats(1);
      const cuda::Fp8Out out{plain, turned, inverse_scale};
      if (casts == want)
        cuda::cast_to_fp8(out, numbers(g), slot(), counter(), rows, cols, stream());
      else
        cuda::cast_gelu_to_fp8(out, numbers(h), slot(), counter(), rows, cols, stream());
      device().wait();
      casts[0].resize(n), casts[1].resize(n);
      plain.memory.read(casts[0].data());
      turned.memory.read(casts[1].data());
    }
    EXPECT_EQ(got[0], want[0]);
    EXPECT_EQ(got[1], want[1]);
    EXPECT_EQ(count(), 0U);
    set_slot({});
  }
}

TEST_P(Fp8Kernels, FindsTheLargestMagnitudeWhereverItIs) {
  for (const std::int64_t n : {8, 2048, 2056, 1'000'000})
    for (const std::int64_t at : {std::int64_t{0}, n / 2, n - 1}) {
      SCOPED_TRACE(testing::Message() << n << " at " << at);
      std::vector<float> values = normal(n);
      values[at] = at % 2 == 0 ? -37.0F : 448.0F;
      const Acts x = acts(values);
      cuda::find_absmax(slot(), numbers(x), n, stream());
      expect_largest(read(x), "found");
    }
  const Acts zeros = acts(std::vector<float>(64, -0.0F));
  cuda::find_absmax(slot(), numbers(zeros), 64, stream());
  expect_largest(read(zeros), "zeros");
  for (const float large : {448.0F, 450.0F, 1.75F, 1.765625F, 3e38F, 1e-38F}) {
    const Acts one = acts(std::vector<float>(16, large));
    cuda::find_absmax(slot(), numbers(one), 16, stream());
    expect_largest(read(one), "alone");
  }
}

TEST_P(Fp8Kernels, GeluLeavesItsLargestMagnitude) {
  for (const std::int64_t n : {16, 4096, 300'000}) {
    SCOPED_TRACE(n);
    const Acts h = acts(normal(n, 2.0)), dg = acts(normal(n));
    Acts g = poisoned_acts(n), dh = poisoned_acts(n), g_again = poisoned_acts(n);
    cuda::gelu_with_absmax(numbers(g), slot(), numbers(h), n, stream());
    expect_largest(read(g), "g");
    cuda::gelu_with_absmax(nullptr, slot(), numbers(h), n, stream());
    expect_largest(read(g), "g, not written");
    cuda::gelu_backward_with_absmax(numbers(dh), slot(), nullptr, nullptr, numbers(dg), numbers(h), n,
                                    stream());
    expect_largest(read(dh), "dh");
    Array<Absmax> other = array<Absmax>(1);
    const Absmax none{};
    other.memory.write(&none);
    cuda::gelu_backward_with_absmax(numbers(dh), other, numbers(g_again), slot(), numbers(dg), numbers(h), n,
                                    stream());
    expect_largest(read(g_again), "g, computed again");
    Absmax of_dh;
    other.memory.read(&of_dh);
    EXPECT_EQ(of_dh.bits, bits_of(largest_of(read(dh))));
    expect_same_bits(read(g_again), read(g), "g, computed again");
  }
}

TEST_P(Fp8Kernels, LayerNormLeavesItsLargestMagnitude) {
  WatchedOps watched(gpu());
  const Extent extent{1, 777, 1024, 8, 1, 8, 64, 64};
  const Memory scratch(device(), watched.scratch_bytes(extent));
  watched.set_scratch(scratch.data(), scratch.bytes());
  for (const std::int64_t d : {8, 72, 384, 768, 1000})
    for (const std::int64_t rows : {1, 5, 777})
      for (const bool add_to_dx : {false, true}) {
        SCOPED_TRACE(testing::Message() << "rows " << rows << " d " << d << " add " << add_to_dx);
        const Acts x = acts(normal(rows * d, 2.0)), dy = acts(normal(rows * d)), y = poisoned_acts(rows * d),
                   dx = add_to_dx ? acts(normal(rows * d)) : poisoned_acts(rows * d);
        const Floats gamma = floats(normal(d, 0.5, 1)), beta = floats(normal(d)),
                     mean = poisoned_floats(rows), rstd = poisoned_floats(rows), dgamma = poisoned_floats(d),
                     dbeta = poisoned_floats(d);
        watched.slot = slot();
        watched.k_layernorm_fwd(y, mean, rstd, x, gamma, beta, rows, d);
        expect_largest(read(y), "y");
        watched.k_layernorm_bwd(dx, dgamma, dbeta, dy, x, gamma, mean, rstd, rows, d, add_to_dx, false);
        expect_largest(read(dx), "dx");
      }
}

TEST_P(Fp8Kernels, AttentionLeavesItsLargestMagnitude) {
  for (const bool portable : {false, true}) {
    const PortableKernels kernels(portable);
    open_with_slot({2, 200, 512, 4, 1, 8, 64, 64});
    WatchedOps watched(gpu());
    const Memory scratch(device(), watched.scratch_bytes({2, 200, 512, 4, 1, 8, 64, 64}));
    watched.set_scratch(scratch.data(), scratch.bytes());
    for (const std::int64_t hd : {8, 32, 64, 96, 128})
      for (const std::int64_t T : {1, 63, 64, 200}) {
        const std::int64_t B = 2, H = 4, n = B * T * H * hd;
        SCOPED_TRACE(testing::Message() << "portable " << portable << " hd " << hd << " T " << T);
        const Acts qkv = acts(normal(3 * n)), dout = acts(normal(n)), out = poisoned_acts(n),
                   plain = poisoned_acts(n), dqkv = poisoned_acts(3 * n), plain_dqkv = poisoned_acts(3 * n);
        const Floats lse = poisoned_floats(B * H * T);
        watched.slot = slot();
        watched.k_attn_fwd(out, lse, qkv, B, T, H, hd);
        expect_largest(read(out), "out");
        watched.k_attn_bwd(dqkv, dout, out, qkv, lse, B, T, H, hd);
        expect_largest(read(dqkv), "dqkv");
        watched.slot = nullptr;  // nobody asks: the same bits
        watched.k_attn_fwd(plain, lse, qkv, B, T, H, hd);
        watched.k_attn_bwd(plain_dqkv, dout, out, qkv, lse, B, T, H, hd);
        device().wait();
        expect_same_bits(read(out), read(plain), "out");
        expect_same_bits(read(dqkv), read(plain_dqkv), "dqkv");
      }
  }
}

TEST_P(Fp8Kernels, WeightsTakeTheirLargestMagnitudesFromPieces) {
  const std::int64_t n = 60'000, piece = cuda::kAbsmaxPiece;
  const std::vector<float> values = normal(n);
  Acts arena = acts(values);
  const std::vector<float> stored = read(arena);
  std::vector<std::uint32_t> of_pieces((n + piece - 1) / piece);
  for (std::int64_t i = 0; i < n; ++i)
    of_pieces[i / piece] = std::max(of_pieces[i / piece], bits_of(std::fabs(stored[i])));
  Array<std::uint32_t> pieces = array<std::uint32_t>(static_cast<std::int64_t>(of_pieces.size()));
  pieces.memory.write(of_pieces.data());
  // Within a piece, on its edges, over many, up to the end; more places than one launch takes.
  std::vector<std::pair<std::int64_t, std::int64_t>> parts = {
      {0, n}, {0, piece}, {piece, piece}, {8, 16}, {piece - 8, 16}, {100, 2 * piece}, {n - 24, 24}};
  for (std::int64_t i = 0; i < 200; ++i) parts.emplace_back(i * 256, 256 + i);
  Array<Absmax> slots = array<Absmax>(static_cast<std::int64_t>(parts.size()));
  std::vector<Absmax> got(parts.size(), Absmax{});
  slots.memory.write(got.data());
  std::vector<cuda::WeightPlace> places;
  for (std::size_t i = 0; i < parts.size(); ++i)
    places.push_back({parts[i].first, parts[i].second, slots.data() + i});
  cuda::weights_absmax(places, numbers(arena), pieces, stream());
  device().wait();
  slots.memory.read(got.data());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto begin = stored.begin() + parts[i].first;
    EXPECT_EQ(got[i].bits, bits_of(largest_of({begin, begin + parts[i].second}))) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Fp8Kernels, testing::Values(Target{"cuda", Precision::kFp8}), target_name);

}  // namespace
}  // namespace andrea
