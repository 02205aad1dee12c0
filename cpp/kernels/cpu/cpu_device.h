// Memory and identity of the CPU. All work is done when a call returns.
#pragma once

#include <string>

#include "kernels/device.h"

namespace andrea {

class CpuDevice final : public Device {
 public:
  CpuDevice(int threads, std::string arithmetic, std::vector<std::string> details, GemmChoices gemm);

  DeviceInfo info() const override;
  void* allocate(std::size_t bytes) override;
  void release(void* memory) noexcept override;
  void* allocate_host(std::size_t bytes) override { return allocate(bytes); }
  void release_host(void* memory) noexcept override { release(memory); }
  void upload(void* device, const void* host, std::size_t bytes) override;
  void download(void* host, const void* device, std::size_t bytes) override;
  void fill_zero(void* device, std::size_t bytes) override;
  bool host_readable() const override { return true; }

 private:
  int threads_;
  std::string arithmetic_;
  std::vector<std::string> details_;
  GemmChoices gemm_;
};

/// Cores this process may use: its affinity, and no more than the quota of its control group.
int usable_cores();

}  // namespace andrea
