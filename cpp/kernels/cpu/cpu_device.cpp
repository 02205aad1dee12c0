#include "kernels/cpu/cpu_device.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <utility>

#include "engine/errors.h"

namespace andrea {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

// The value behind "key:" in a file of such lines; empty if it is not there.
std::string value_of(const char* file, const std::string& key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || line.compare(0, key.size(), key) != 0) continue;
    const std::size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

std::size_t available_bytes() {
  const std::string kilobytes = value_of("/proc/meminfo", "MemAvailable");
  return kilobytes.empty() ? 0 : std::strtoull(kilobytes.c_str(), nullptr, 10) * 1024;
}

// What a control group leaves of `total`; files say "max" where there is no limit.
std::size_t within_group(std::size_t total) {
  std::ifstream limit("/sys/fs/cgroup/memory.max");
  std::size_t bytes = 0;
  return limit >> bytes ? std::min(bytes, total) : total;
}

}  // namespace

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set)
                                                           : static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  std::ifstream quota("/sys/fs/cgroup/cpu.max");
  double granted = 0, period = 0;
  if (quota >> granted >> period && granted > 0 && period > 0)
    cores = std::min(cores, std::max(1, static_cast<int>((granted + period - 1) / period)));
  return std::max(1, cores);
}

CpuDevice::CpuDevice(int threads, std::string arithmetic, std::vector<std::string> details, GemmChoices gemm)
    : threads_(threads),
      arithmetic_(std::move(arithmetic)),
      details_(std::move(details)),
      gemm_(std::move(gemm)) {}

DeviceInfo CpuDevice::info() const {
  DeviceInfo info;
  info.backend = "cpu";
  info.name = value_of("/proc/cpuinfo", "model name");
  if (info.name.empty()) info.name = "CPU";
  info.arithmetic = arithmetic_;
  info.details = details_;
  info.gemm = gemm_;
  struct sysinfo machine{};
  if (sysinfo(&machine) == 0)
    info.total_bytes = within_group(static_cast<std::size_t>(machine.totalram) * machine.mem_unit);
  info.free_bytes = std::min(available_bytes(), info.total_bytes);
  info.threads = threads_;
  return info;
}

void* CpuDevice::allocate(std::size_t bytes) {
  // Large blocks on huge pages: fewer misses of the address cache in every pass over the parameters.
  const std::size_t alignment = bytes >= 4 * kHugePage ? kHugePage : kAlignment;
  void* memory = nullptr;
  std::size_t rounded = 0;
  if (bytes <= std::numeric_limits<std::ptrdiff_t>::max() - alignment) {
    rounded = std::max(alignment, (bytes + alignment - 1) / alignment * alignment);
    memory = std::aligned_alloc(alignment, rounded);
  }
  if (memory == nullptr)
    throw OutOfMemory("device cpu: " + std::to_string(bytes) + " bytes were refused; " +
                          std::to_string(available_bytes()) + " are available. Use a smaller batch or model.",
                      bytes, available_bytes());
  if (alignment == kHugePage) madvise(memory, rounded, MADV_HUGEPAGE);  // a wish; without it all is well too
  return memory;
}

void CpuDevice::release(void* memory) noexcept { std::free(memory); }

void CpuDevice::upload(void* device, const void* host, std::size_t bytes) {
  if (bytes != 0) std::memcpy(device, host, bytes);
}

void CpuDevice::download(void* host, const void* device, std::size_t bytes) {
  if (bytes != 0) std::memcpy(host, device, bytes);
}

void CpuDevice::fill_zero(void* device, std::size_t bytes) {
  if (bytes != 0) std::memset(device, 0, bytes);
}

}  // namespace andrea
