// What make_backend promises, and that the tests see every back end of this machine.
#include "kernels/backend.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "backend_fixture.h"
#include "engine/errors.h"

namespace andrea {
namespace {

TEST(Backend, CpuIsAlwaysPresentAndFirst) { EXPECT_EQ(backends_present().front(), "cpu"); }

TEST(Backend, CpuRefusesWhatItCannotDo) {
  for (const Precision precision : {Precision::kFp16, Precision::kBf16, Precision::kFp8})
    EXPECT_THROW(make_backend({"cpu", precision, false, 0}), ConfigError) << precision_name(precision);
}

TEST(Backend, UnknownDeviceIsNamed) {
  try {
    make_backend({"tpu", Precision::kFp32, false, 0});
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("tpu"), std::string::npos) << error.what();
  }
}

TEST(Backend, CpuSaysWhatDecidesItsBits) {
  const Backend one = make_backend({"cpu", Precision::kFp32, false, 1});
  const Backend two = make_backend({"cpu", Precision::kFp32, false, 2});
  EXPECT_EQ(one.device->info().threads, 1);
  EXPECT_EQ(two.device->info().threads, 2);
  EXPECT_NE(one.device->info().arithmetic.find("OpenBLAS"), std::string::npos)
      << one.device->info().arithmetic;
  EXPECT_EQ(one.device->info().arithmetic, two.device->info().arithmetic) << "threads do not change the bits";
  EXPECT_GT(one.device->info().total_bytes, 0u);
}

class DeviceTest : public KernelTest {};

TEST_P(DeviceTest, MemoryIsAlignedAndCopiesArrive) {
  open({1, 1, 8, 1, 1, 8, 64, 64});
  for (const std::size_t bytes : {1u, 255u, 4096u, 5u << 20}) {
    void* memory = device().allocate(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 256, 0u);
    unsigned char* host = static_cast<unsigned char*>(device().allocate_host(bytes));
    for (std::size_t i = 0; i < bytes; ++i) host[i] = static_cast<unsigned char>(i * 7 + 1);
    device().upload(memory, host, bytes);
    device().wait();
    std::memset(host, 0, bytes);
    device().download(host, memory, bytes);
    device().wait();
    for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(host[i], static_cast<unsigned char>(i * 7 + 1)) << i;
    device().fill_zero(memory, bytes);
    device().download(host, memory, bytes);
    device().wait();
    for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(host[i], 0) << i;
    device().release_host(host);
    device().release(memory);
  }
}

TEST_P(DeviceTest, RunsWorkForAKeyAgainAndAgain) {
  open({1, 8, 8, 1, 1, 8, 64, 64});
  const std::vector<float> a = normal(64), b = normal(64);
  const Acts left = acts(a), right = acts(b), out = poisoned_acts(64);
  for (int round = 0; round < 3; ++round) {
    device().run(7, [&] { ops().k_residual_add(out, left, right, 64); });
    device().mark(0);
    device().wait_mark(0);
    expect_close(read(out), reference::add(doubles(left), doubles(right)), stored(1), "a + b");
  }
}

TEST_P(DeviceTest, CastsBothWays) {
  open({1, 8, 8, 1, 1, 8, 64, 64});
  for (const std::int64_t n : {1, 3, 7, 8, 31, 1000}) {
    const std::vector<float> values = normal(n);
    expect_close(read(acts(values)), to_doubles(values), {1.01 * unit(), 0}, "cast there and back");
  }
}

ANDREA_ON_EVERY_BACKEND(DeviceTest);

}  // namespace
}  // namespace andrea
