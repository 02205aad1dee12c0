// Runs one test body on every back end and precision, and moves arrays to the device and back.
//
// Inputs are rounded to the storage type first and read back, so that a reference sees what the kernel sees.
// Outputs are poisoned with NaN and followed by a guard, so that an element left out or a write past the end
// fails the test.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "reference.h"

namespace andrea {

struct Target {
  std::string device;
  Precision precision;
};
std::ostream& operator<<(std::ostream& stream, const Target& target);
/// Every combination the suites know, present or not: what is not present is skipped visibly.
std::vector<Target> all_targets();
std::string target_name(const testing::TestParamInfo<Target>& info);

/// |got - want| <= relative * |want| + absolute * rms(want).
struct Tolerance {
  double relative;
  double absolute;
};

/// Device memory of n elements with a guard behind it.
class Memory {
 public:
  Memory(Device& device, std::size_t bytes);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&&) = delete;

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  void write(const void* host);
  /// Fails the test if the guard was touched.
  void read(void* host) const;

 private:
  Device* device_;
  std::size_t bytes_;
  void* data_;
};

/// A float, int32 or double array on the device.
template <class T>
struct Array {
  Memory memory;
  std::int64_t n;
  T* data() const { return static_cast<T*>(memory.data()); }
  operator T*() const { return data(); }
};
using Floats = Array<float>;
using Ints = Array<std::int32_t>;
using Acts = Array<act_t>;

/// ANDREA_PORTABLE_KERNELS while it lives; then what it was before.
class PortableKernels {
 public:
  explicit PortableKernels(bool portable);
  ~PortableKernels();
  PortableKernels(const PortableKernels&) = delete;
  PortableKernels& operator=(const PortableKernels&) = delete;

 private:
  std::optional<std::string> before_;
};

class KernelTest : public testing::TestWithParam<Target> {
 protected:
  /// Skips if the target is not present.
  void SetUp() override;
  /// Makes a fresh back end with scratch memory for the extent; arrays made before must be gone.
  void open(const Extent& extent, int threads = 0);

  Ops& ops() { return *backend_.ops; }
  Device& device() { return *backend_.device; }

  Floats floats(const std::vector<float>& values);
  Floats poisoned_floats(std::int64_t n);
  Ints ints(const std::vector<std::int32_t>& values);
  Acts acts(const std::vector<float>& values);
  Acts poisoned_acts(std::int64_t n);
  /// Memory for one T, uninitialised.
  template <class T>
  Array<T> array(std::int64_t n) {
    return {Memory(device(), n * sizeof(T)), n};
  }

  std::vector<float> read(const Floats& values);
  std::vector<float> read(const Acts& values);
  reference::Doubles doubles(const Floats& values);
  reference::Doubles doubles(const Acts& values);

  /// n normal variates, reproducible; a fresh sequence for each call in a test.
  std::vector<float> normal(std::int64_t n, double deviation = 1.0, double mean = 0.0);
  std::vector<std::int32_t> ids(std::int64_t n, std::int64_t below);

  /// Rounding error of one stored activation: half a unit in the last place, relative.
  double unit() const;
  /// For a value stored as act_t after a sum of sum_length terms; roundings: how many intermediate results
  /// were stored as act_t on the way. product: the sum is a matrix product (FP8 rounds its inputs).
  Tolerance stored(std::int64_t sum_length, bool product = false, double roundings = 0) const;
  /// The same for a result that stays float32.
  Tolerance summed(std::int64_t sum_length, bool product = false, double roundings = 0) const;

 private:
  Backend backend_;
  std::unique_ptr<Memory> scratch_;
  std::unique_ptr<Memory> kept_;
  std::mt19937 random_{12345};
};

/// Fails with the worst element if got is not want within the tolerance, or is not finite.
void expect_close(const std::vector<float>& got, const reference::Doubles& want, Tolerance tolerance,
                  const char* what);
/// Fails at the first element that differs in its bits.
void expect_same_bits(const std::vector<float>& got, const std::vector<float>& want, const char* what);
reference::Doubles to_doubles(const std::vector<float>& values);
std::int64_t padded_vocab(std::int64_t V);

#define ANDREA_ON_EVERY_BACKEND(suite) \
  INSTANTIATE_TEST_SUITE_P(Backends, suite, testing::ValuesIn(all_targets()), target_name)

}  // namespace andrea
