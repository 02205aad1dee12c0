// The CUDA side of Device: one GPU, one stream, pinned memory, events as marks, recorded graphs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

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
  /// The first run for a key is done as it is (libraries load what they need), the second is recorded as a
  /// graph, later ones replay it. The kernels and their order are the same each time, hence the bits too.
  void run(std::int64_t key, const std::function<void()>& work) override;
  void mark(int slot) override;
  void wait_mark(int slot) override;
  void wait() override;
  int steps_in_flight() const override { return 2; }

  cudaStream_t stream() const { return stream_; }

  // Work beside the stream. Weight gradients are read by nothing until the end of a step, and their few
  // tiles leave most of the GPU idle: they run on a second stream, and whoever is about to touch memory
  // that they read or write waits for them first. The order of every sum stays as it is, so the bits do,
  // too.

  /// Bytes from..from+bytes-1 that a piece of work reads or writes.
  struct Range {
    const void* from;
    std::size_t bytes;
  };
  /// The second stream, made to wait for everything queued so far.
  cudaStream_t begin_beside();
  /// What was queued there since touches these ranges (at most three).
  void end_beside(const Range& a, const Range& b, const Range& c);
  /// Makes the stream wait for the work beside it that touches the range.
  void settle(const void* from, std::size_t bytes);
  void settle_all();

  GemmTable& gemm() { return *gemm_; }

 private:
  struct Record {
    bool seen = false;
    cudaGraphExec_t graph = nullptr;
  };
  static constexpr int kMarks = 8;
  static constexpr int kBeside = 32;  // pieces of work beside the stream that are told apart
  struct Beside {
    Range ranges[3];
    int event;  // in beside_events_
  };

  Precision precision_;
  bool allow_tf32_;
  int device_ = 0;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t marks_[kMarks] = {};
  cudaStream_t beside_stream_ = nullptr;
  cudaEvent_t fork_ = nullptr;
  cudaEvent_t beside_events_[kBeside] = {};
  int next_event_ = 0;
  std::vector<Beside> beside_;  // in the order they were queued
  std::unique_ptr<GemmTable> gemm_;
  std::map<std::int64_t, Record> records_;
};

/// Empty if device 0 can run this build, else why not.
std::string device_unavailable_reason();

}  // namespace andrea::cuda
