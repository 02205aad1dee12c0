// What a device can do: measured by large products and additions, and what its maker states.
#include "engine/bench/peaks.h"

#include <algorithm>
#include <cmath>

#include "engine/hash/philox.h"

namespace andrea {
namespace {

// Device memory that goes when the benchmark of the peaks ends.
class Block {
 public:
  Block(Device& device, std::int64_t bytes)
      : device_(device), memory_(device.allocate(static_cast<std::size_t>(bytes))) {}
  ~Block() { device_.release(memory_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  template <class T>
  T* as() const {
    return static_cast<T*>(memory_);
  }

 private:
  Device& device_;
  void* memory_;
};

// Numbers of mean 0 and variance 1: products of zeros draw less power and run faster. One host block, many
// times.
void fill_with_noise(Backend& backend, act_t* out, std::int64_t n) {
  Device& device = *backend.device;
  const std::int64_t block = std::min<std::int64_t>(n, std::int64_t{1} << 20);
  auto* host = static_cast<float*>(device.allocate_host(static_cast<std::size_t>(block) * 4));
  const Philox random(1, kRows);
  for (std::int64_t i = 0; i < block; ++i) {
    const auto words = random.at(static_cast<std::uint64_t>(i));
    host[i] = static_cast<float>(std::sqrt(12.0) * (Philox::uniform(words[0], words[1]) - 0.5));
  }
  const Block wide(device, block * 4);
  device.upload(wide.as<float>(), host, static_cast<std::size_t>(block) * 4);
  const auto act = static_cast<std::int64_t>(backend.ops->act_bytes());
  for (std::int64_t at = 0; at < n; at += block)
    backend.ops->k_cast_weights(reinterpret_cast<act_t*>(reinterpret_cast<char*>(out) + at * act),
                                wide.as<float>(), std::min(block, n - at));
  device.wait();
  device.release_host(host);
}

struct NominalPeak {
  const char* name;              // found in the device's name; longer names first
  double fp32, tf32, half, fp8;  // TFLOP/s, dense, float32 sums; 0: it has none
};
// From NVIDIA's data sheets and architecture papers.
constexpr NominalPeak kNominal[] = {
    {"H100 PCIe", 51.2, 378, 756, 1513},  {"H200", 66.9, 494.7, 989.4, 1978.9},
    {"H100", 66.9, 494.7, 989.4, 1978.9}, {"A100", 19.5, 156, 312, 0},
    {"L40S", 91.6, 183, 362, 733},        {"RTX 4090", 82.6, 82.6, 165.2, 330.3},
    {"RTX 3090 Ti", 40.0, 40.0, 80.0, 0}, {"RTX 3090", 35.6, 35.6, 71.2, 0},
};

}  // namespace

std::optional<double> nominal_peak(const std::string& device, Precision precision, bool allow_tf32) {
  for (const NominalPeak& peak : kNominal) {
    const std::size_t at = device.find(peak.name);
    if (at == std::string::npos) continue;
    // "RTX 4090" is no "RTX 4090 D" or "RTX 4090 Laptop GPU"; "H100 80GB HBM3" is an H100.
    const std::string rest = device.substr(at + std::string(peak.name).size());
    if (std::string(peak.name).compare(0, 3, "RTX") == 0 && !rest.empty()) continue;
    if (rest.find("MIG") != std::string::npos) continue;
    if (precision == Precision::kFp8) return peak.fp8 > 0 ? std::optional(peak.fp8 * 1e12) : std::nullopt;
    if (precision != Precision::kFp32) return peak.half * 1e12;
    return (allow_tf32 ? peak.tf32 : peak.fp32) * 1e12;
  }
  return std::nullopt;
}

double best_ms(Device& device, std::int64_t key, int replays, const std::function<void()>& work) {
  double best = 1e30;
  for (int i = 0; i < replays + 2; ++i) {  // the first is done as it is, the second recorded
    const double ms = device.time([&] { device.run(key, work); });
    if (i >= 2 || replays <= 1) best = std::min(best, ms);
    if (replays <= 1) break;
  }
  return best;
}

DevicePeaks measure_peaks(Backend& backend, std::int64_t key, bool allow_tf32) {
  Device& device = *backend.device;
  Ops& ops = *backend.ops;
  const DeviceInfo info = device.info();
  const bool gpu = info.backend == "cuda";
  DevicePeaks peaks;
  peaks.gemm_size = !gpu ? 1024 : info.free_bytes > (std::size_t{4} << 30) ? 8192 : 4096;
  const std::int64_t n = peaks.gemm_size, act = static_cast<std::int64_t>(ops.act_bytes());
  const Extent extent{1, n, n, 1, 1, n, n, 0};
  const std::size_t scratch_bytes = ops.scratch_bytes(extent);
  const Block scratch(device, static_cast<std::int64_t>(scratch_bytes));
  ops.set_scratch(scratch.as<void>(), scratch_bytes);
  const Block kept(device, static_cast<std::int64_t>(ops.kept_bytes(extent)));
  ops.set_kept(kept.as<void>(), extent);

  const std::int64_t sum_n = gpu ? n * n : std::int64_t{1} << 24;  // past every cache
  const std::int64_t most = std::max(n * n, sum_n);
  const Block a(device, most * act), b(device, most * act), c(device, most * act);
  fill_with_noise(backend, a.as<act_t>(), most);
  fill_with_noise(backend, b.as<act_t>(), most);
  const int launches = gpu ? 16 : 1, replays = gpu ? 9 : 5;
  const double size = static_cast<double>(n);
  const auto rate_of = [&](std::int64_t of, const std::function<void()>& product) {
    const double ms = best_ms(device, of, replays, [&] {
      for (int i = 0; i < launches; ++i) product();
    });
    return 2 * size * size * size * launches / (ms * 1e-3);
  };
  peaks.gemm_flops = peaks.wide_flops =
      rate_of(key, [&] { ops.k_attn_out_fwd(c.as<act_t>(), a.as<act_t>(), b.as<act_t>(), nullptr, n, n); });
  if (ops.precision() == Precision::kFp8)
    peaks.wide_flops =
        rate_of(key + 2, [&] { ops.k_head_fwd(c.as<act_t>(), a.as<act_t>(), b.as<act_t>(), n, n, n); });
  const double sum_ms = best_ms(device, key + 1, replays, [&] {
    for (int i = 0; i < launches; ++i) ops.k_residual_add(c.as<act_t>(), a.as<act_t>(), b.as<act_t>(), sum_n);
  });
  peaks.copy_bytes = 3.0 * static_cast<double>(sum_n * act) * launches / (sum_ms * 1e-3);
  peaks.nominal_flops = nominal_peak(info.name, ops.precision(), allow_tf32);
  device.wait();
  return peaks;
}

}  // namespace andrea
