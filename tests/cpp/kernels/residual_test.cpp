// k_residual_add, k_residual_add_bwd.
#include <cstdlib>
#include <cstring>

#include "backend_fixture.h"

namespace andrea {
namespace {

class ResidualTest : public KernelTest {};

const std::int64_t kSizes[] = {1, 7, 8, 31, 64, 65, 1000, 100001};

TEST_P(ResidualTest, ForwardAdds) {
  open({1, 8, 8, 1, 1, 8, 64, 64});
  for (const std::int64_t n : kSizes) {
    const Acts a = acts(normal(n)), b = acts(normal(n)), out = poisoned_acts(n);
    const reference::Doubles want = reference::add(doubles(a), doubles(b));
    ops().k_residual_add(out, a, b, n);
    device().wait();
    expect_close(read(out), want, stored(1), "out");
    ops().k_residual_add(a, a, b, n);
    device().wait();
    expect_same_bits(read(a), read(out), "out = a in place");
  }
}

TEST_P(ResidualTest, ForwardInPlaceOfTheSecond) {
  open({1, 8, 8, 1, 1, 8, 64, 64});
  const Acts a = acts(normal(77)), b = acts(normal(77)), out = poisoned_acts(77);
  ops().k_residual_add(out, a, b, 77);
  ops().k_residual_add(b, a, b, 77);
  device().wait();
  expect_same_bits(read(b), read(out), "out = b in place");
}

TEST_P(ResidualTest, BackwardCopiesToBothBranches) {
  open({1, 8, 8, 1, 1, 8, 64, 64});
  for (const std::int64_t n : kSizes) {
    const Acts dout = acts(normal(n)), da = poisoned_acts(n), db = poisoned_acts(n);
    ops().k_residual_add_bwd(da, db, dout, n);
    device().wait();
    expect_same_bits(read(da), read(dout), "da");
    expect_same_bits(read(db), read(dout), "db");
  }
}

// An index space above 2^31 elements. Needs 8.6 GB in place (4.3 GB in 16 bits), so it runs on request:
// ANDREA_TEST_HUGE=1.
TEST_P(ResidualTest, ForwardBeyondThirtyOneBits) {
  if (std::getenv("ANDREA_TEST_HUGE") == nullptr)
    GTEST_SKIP() << "set ANDREA_TEST_HUGE=1 to run (needs 9 GB)";
  open({1, 8, 8, 1, 1, 8, 64, 64});
  const std::int64_t n = (std::int64_t{1} << 31) + 5;
  const std::size_t width = ops().act_bytes();
  char* big = static_cast<char*>(device().allocate(n * width));
  device().fill_zero(big, n * width);
  // Ones at the far end only; doubling in place must reach them.
  const std::int64_t edge = 16;
  const Acts ones = acts(std::vector<float>(edge, 1.0f));
  char* host = static_cast<char*>(device().allocate_host(edge * width));
  device().download(host, ones.data(), edge * width);
  device().wait();
  char* tail = big + (n - edge) * width;
  device().upload(tail, host, edge * width);
  act_t* all = reinterpret_cast<act_t*>(big);
  ops().k_residual_add(all, all, all, n);
  device().download(host, tail, edge * width);
  device().wait();
  const Acts got = acts(std::vector<float>(edge, 0.0f));
  device().upload(got.data(), host, edge * width);
  device().wait();
  expect_same_bits(read(got), std::vector<float>(edge, 2.0f), "tail");
  device().download(host, big, edge * width);
  device().upload(got.data(), host, edge * width);
  device().wait();
  expect_same_bits(read(got), std::vector<float>(edge, 0.0f), "head");
  device().release_host(host);
  device().release(big);
}

ANDREA_ON_EVERY_BACKEND(ResidualTest);

}  // namespace
}  // namespace andrea
