// The CUDA side of Device: one GPU, one stream, pinned memory, events as marks, recorded graphs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "kernels/cuda/gemm.h"
#include "kernels/device.h"

namespace andrea::cuda {

class CudaDevice final : public Device {
 public:
  /// Takes device 0 of those visible (CUDA_VISIBLE_DEVICES chooses).
  CudaDevice(Precision precision, bool allow_tf32);
  ~CudaDevice() override;

  DeviceInfo info() const override;
  void* allocate(std::size_t bytes) override;
  void release(void* memory) noexcept override;
  void* allocate_host(std::size_t bytes) override;
  void release_host(void* memory) noexcept override;
  void upload(void* device, const void* host, std::size_t bytes) override;
  void download(void* host, const void* device, std::size_t bytes) override;
  void fill_zero(void* device, std::size_t bytes) override;
  /// A second stream copies; the first one's work waits for it where await_snapshots() says, and nowhere
  /// else.
  void snapshot(void* host, const void* device, std::size_t bytes) override;
  void await_snapshots() override;
  void wait_snapshots() override;
  /// The first run for a key is done as it is (libraries load what they need), the second is recorded as a
  /// graph, later ones replay it. The kernels and their order are the same each time, hence the bits too.
  void run(std::int64_t key, const std::function<void()>& work) override;
  void mark(int slot) override;
  void wait_mark(int slot) override;
  void wait() override;
  /// By two events in the stream.
  double time(const std::function<void()>& work) override;
  int steps_in_flight() const override { return kStepsInFlight; }

  /// Compute capability: "9.0".
  std::string capability() const;
  cudaStream_t stream() const { return stream_; }
  /// Kernels made for sm_90a are built and this GPU runs them; ANDREA_PORTABLE_KERNELS=1 in the environment
  /// chooses the portable ones all the same.
  bool hopper_kernels() const { return hopper_kernels_; }
  GemmTable& gemm() { return *gemm_; }

 private:
  struct Record {
    bool seen = false;
    cudaGraphExec_t graph = nullptr;
  };
  static constexpr int kMarks = 8;

  Precision precision_;
  bool allow_tf32_;
  bool hopper_kernels_ = false;
  int device_ = 0;
  cudaStream_t stream_ = nullptr;
  cudaStream_t copies_ = nullptr;         // of snapshots
  cudaEvent_t work_done_ = nullptr;       // in stream_, before a snapshot begins
  cudaEvent_t snapshots_done_ = nullptr;  // in copies_
  cudaEvent_t marks_[kMarks] = {};
  cudaEvent_t timer_[2] = {};  // made by the first time()
  std::unique_ptr<GemmTable> gemm_;
  std::map<std::int64_t, Record> records_;
};

/// Empty if device 0 can run this build, else why not.
std::string device_unavailable_reason();

}  // namespace andrea::cuda
