#include "backend_fixture.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "engine/errors.h"

namespace andrea {
namespace {

constexpr std::size_t kGuardBytes = 512;
constexpr unsigned char kGuardByte = 0xA5;

// Host memory that copies may use.
class Staging {
 public:
  Staging(Device& device, std::size_t bytes) : device_(device), data_(device.allocate_host(bytes)) {}
  ~Staging() { device_.release_host(data_); }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  unsigned char* data() const { return static_cast<unsigned char*>(data_); }

 private:
  Device& device_;
  void* data_;
};

}  // namespace

std::ostream& operator<<(std::ostream& stream, const Target& target) {
  return stream << target.device << " " << precision_name(target.precision);
}

std::vector<Target> all_targets() {
  return {{"cpu", Precision::kFp32},
          {"cuda", Precision::kFp32},
          {"cuda", Precision::kFp16},
          {"cuda", Precision::kBf16},
          {"cuda", Precision::kFp8}};
}

std::string target_name(const testing::TestParamInfo<Target>& info) {
  return info.param.device + "_" + precision_name(info.param.precision);
}

Memory::Memory(Device& device, std::size_t bytes)
    : device_(&device), bytes_(bytes), data_(device.allocate(bytes + kGuardBytes)) {
  Staging staging(device, bytes + kGuardBytes);
  std::memset(staging.data(), kGuardByte, bytes + kGuardBytes);
  device.upload(data_, staging.data(), bytes + kGuardBytes);
  device.wait();
}

Memory::~Memory() {
  if (data_ != nullptr) device_->release(data_);
}

Memory::Memory(Memory&& other) noexcept : device_(other.device_), bytes_(other.bytes_), data_(other.data_) {
  other.data_ = nullptr;
}

void Memory::write(const void* host) {
  if (bytes_ == 0) return;
  Staging staging(*device_, bytes_);
  std::memcpy(staging.data(), host, bytes_);
  device_->upload(data_, staging.data(), bytes_);
  device_->wait();
}

void Memory::read(void* host) const {
  Staging staging(*device_, bytes_ + kGuardBytes);
  device_->download(staging.data(), data_, bytes_ + kGuardBytes);
  device_->wait();
  if (bytes_ != 0) std::memcpy(host, staging.data(), bytes_);
  const unsigned char* guard = staging.data() + bytes_;
  EXPECT_TRUE(std::all_of(guard, guard + kGuardBytes, [](unsigned char c) { return c == kGuardByte; }))
      << "the kernel wrote past the end of an array of " << bytes_ << " bytes";
}

PortableKernels::PortableKernels(bool portable) {
  if (const char* before = std::getenv("ANDREA_PORTABLE_KERNELS")) before_ = before;
  ::setenv("ANDREA_PORTABLE_KERNELS", portable ? "1" : "0", 1);
}

PortableKernels::~PortableKernels() {
  if (before_)
    ::setenv("ANDREA_PORTABLE_KERNELS", before_->c_str(), 1);
  else
    ::unsetenv("ANDREA_PORTABLE_KERNELS");
}

void KernelTest::SetUp() {
  const Target& target = GetParam();
  const std::vector<std::string> present = backends_present();
  if (std::find(present.begin(), present.end(), target.device) == present.end()) {
    std::string reasons;
    for (const std::string& line : backends_missing()) reasons += line + " ";
    GTEST_SKIP() << reasons;
  }
  try {
    make_backend({target.device, target.precision, false, 0});
  } catch (const ConfigError& error) {
    GTEST_SKIP() << target << ": " << error.what();
  } catch (const DeviceError& error) {
    // A run that asks for an instruction path by name is skipped where the processor lacks it.
    if (target.device != "cpu" || std::getenv("ANDREA_CPU_PATH") == nullptr) throw;
    GTEST_SKIP() << target << ": " << error.what();
  }
}

void KernelTest::open(const Extent& extent, int threads) {
  scratch_.reset();
  kept_.reset();
  backend_.ops.reset();
  backend_.device.reset();
  backend_ = make_backend({GetParam().device, GetParam().precision, false, threads});
  const std::size_t bytes = ops().scratch_bytes(extent);
  scratch_ = std::make_unique<Memory>(device(), bytes);
  ops().set_scratch(scratch_->data(), bytes);
  kept_ = std::make_unique<Memory>(device(), ops().kept_bytes(extent));
  ops().set_kept(kept_->data(), extent);
}

Floats KernelTest::floats(const std::vector<float>& values) {
  Floats result = array<float>(static_cast<std::int64_t>(values.size()));
  result.memory.write(values.data());
  return result;
}

Floats KernelTest::poisoned_floats(std::int64_t n) {
  return floats(std::vector<float>(n, std::numeric_limits<float>::quiet_NaN()));
}

Ints KernelTest::ints(const std::vector<std::int32_t>& values) {
  Ints result = array<std::int32_t>(static_cast<std::int64_t>(values.size()));
  result.memory.write(values.data());
  return result;
}

Acts KernelTest::acts(const std::vector<float>& values) {
  const std::int64_t n = static_cast<std::int64_t>(values.size());
  const Floats source = floats(values);
  Acts result{Memory(device(), n * ops().act_bytes()), n};
  ops().k_cast_weights(result, source, n);
  device().wait();
  return result;
}

Acts KernelTest::poisoned_acts(std::int64_t n) {
  return acts(std::vector<float>(n, std::numeric_limits<float>::quiet_NaN()));
}

std::vector<float> KernelTest::read(const Floats& values) {
  std::vector<float> result(values.n);
  values.memory.read(result.data());
  return result;
}

std::vector<float> KernelTest::read(const Acts& values) {
  std::vector<unsigned char> raw(values.memory.bytes());
  values.memory.read(raw.data());  // for its guard
  const Floats result = poisoned_floats(values.n);
  ops().k_cast_to_float(result, values, values.n);
  device().wait();
  return read(result);
}

reference::Doubles to_doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }
reference::Doubles KernelTest::doubles(const Floats& values) { return to_doubles(read(values)); }
reference::Doubles KernelTest::doubles(const Acts& values) { return to_doubles(read(values)); }

std::vector<float> KernelTest::normal(std::int64_t n, double deviation, double mean) {
  std::normal_distribution<double> distribution(mean, deviation);
  std::vector<float> result(n);
  for (float& value : result) value = static_cast<float>(distribution(random_));
  return result;
}

std::vector<std::int32_t> KernelTest::ids(std::int64_t n, std::int64_t below) {
  std::vector<std::int32_t> result(n);
  for (std::int32_t& id : result)
    id = static_cast<std::int32_t>(random_() % static_cast<std::uint64_t>(below));
  return result;
}

double KernelTest::unit() const {
  switch (GetParam().precision) {
    case Precision::kFp32:
      return std::ldexp(1, -24);
    case Precision::kFp16:
      return std::ldexp(1, -11);
    case Precision::kBf16:
    case Precision::kFp8:
      return std::ldexp(1, -8);
  }
  return 0;
}

Tolerance KernelTest::stored(std::int64_t sum_length, bool product, double roundings) const {
  const Tolerance inner = summed(sum_length, product, roundings);
  return {inner.relative + 1.5 * unit(), inner.absolute};
}

Tolerance KernelTest::summed(std::int64_t sum_length, bool product, double roundings) const {
  // Float32 sums err like a random walk; 6 deviations leave no room for chance over some 10^6 elements.
  const double walk = std::ldexp(1, -24) * 6 * (2 + std::sqrt(static_cast<double>(sum_length)));
  // E4M3 has 3 bits behind the point: a relative error uniform up to 1/16 in each factor, 0.051 in a product.
  const double inputs = product && GetParam().precision == Precision::kFp8 ? 6 * 0.051 : 0;
  return {walk + 2 * roundings * unit(), walk + inputs * (1 + roundings) + 6 * roundings * unit()};
}

void expect_close(const std::vector<float>& got, const reference::Doubles& want, Tolerance tolerance,
                  const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double squares = 0;
  for (const double value : want) squares += value * value;
  const double scale = want.empty() ? 0 : std::sqrt(squares / static_cast<double>(want.size()));
  std::size_t worst = 0;
  double worst_ratio = -1;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double allowed = tolerance.relative * std::fabs(want[i]) + tolerance.absolute * scale + 1e-30;
    const double ratio = std::isfinite(got[i]) ? std::fabs(got[i] - want[i]) / allowed
                                               : std::numeric_limits<double>::infinity();
    if (ratio > worst_ratio) worst_ratio = ratio, worst = i;
  }
  if (worst_ratio > 1)
    ADD_FAILURE() << what << "[" << worst << "] of " << got.size() << " is " << got[worst] << ", not "
                  << want[worst] << ": " << worst_ratio << " times what rounding allows (rms " << scale
                  << ")";
}

void expect_same_bits(const std::vector<float>& got, const std::vector<float>& want, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(std::memcmp(&got[i], &want[i], sizeof(float)), 0)
        << what << "[" << i << "]: " << got[i] << " and " << want[i];
}

std::int64_t padded_vocab(std::int64_t V) {
  return (V + kVocabMultiple - 1) / kVocabMultiple * kVocabMultiple;
}

}  // namespace andrea
