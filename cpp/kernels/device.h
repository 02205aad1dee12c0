// What the engine asks of a device besides arithmetic: memory, copies, and one step run as a unit.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/gemm_choices.h"

namespace andrea {

/// Identity of a device, and everything about it that decides the bits of a result.
struct DeviceInfo {
  std::string backend;               ///< "cpu" or "cuda"
  std::string name;                  ///< "AMD EPYC 7763", "NVIDIA GeForce RTX 3060"
  std::string arithmetic;            ///< libraries, versions and instruction path: equal text, equal bits
  std::vector<std::string> details;  ///< lines for `andrea doctor`: driver, capability
  std::string pci_bus_id;            ///< "0000:65:00.0", by which other tools know the card; empty on the CPU
  GemmChoices gemm;                  ///< how the matrix products made so far are made
  std::size_t total_bytes = 0;       ///< memory of the device
  std::size_t free_bytes = 0;        ///< what is free of it now
  int threads = 1;                   ///< worker threads (CPU)
};

/// One device and its one stream of work. Work is done in the order of the calls; wait() is the only
/// call that blocks unless a comment says otherwise. On the CPU everything is done when a call returns.
///
/// All calls throw DeviceError with call, file, line and reason.
class Device {
 public:
  virtual ~Device() = default;
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  virtual DeviceInfo info() const = 0;

  /// Device memory, aligned to 256 bytes, contents undefined. OutOfMemory if it is refused. The engine calls
  /// this when it is built and never again.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
  /// Host memory that copies to and from the device can use without a detour (pinned on CUDA).
  virtual void* allocate_host(std::size_t bytes) = 0;
  virtual void release_host(void* memory) noexcept = 0;

  /// Queue a copy. `host` must come from allocate_host() and stay unchanged until a mark after it was waited
  /// for.
  virtual void upload(void* device, const void* host, std::size_t bytes) = 0;
  virtual void download(void* host, const void* device, std::size_t bytes) = 0;
  virtual void fill_zero(void* device, std::size_t bytes) = 0;

  /// True if the host can read device memory as it is: a snapshot then needs no copy.
  virtual bool host_readable() const { return false; }
  /// A download beside the stream: it begins when all work queued so far is done, and later work need not
  /// wait for it. `host` comes from allocate_host().
  virtual void snapshot(void* host, const void* device, std::size_t bytes) { download(host, device, bytes); }
  /// Work queued from here on waits until the snapshots are complete. May be part of recorded work.
  virtual void await_snapshots() {}
  /// Blocks the caller, who may be any thread, until the snapshots are complete.
  virtual void wait_snapshots() { wait(); }

  /// Run `work`, which queues a fixed sequence of operations. The first run for a `key` may record it; later
  /// runs may replay the record (a CUDA graph), so `work` must do the same for the same key each time.
  virtual void run(std::int64_t key, const std::function<void()>& work) { (void)key, work(); }

  /// A point in the stream, numbered by the caller (0..7); wait_mark() blocks until the work before it is
  /// done.
  virtual void mark(int slot) { (void)slot; }
  virtual void wait_mark(int slot) { (void)slot; }
  /// Block until all queued work is done.
  virtual void wait() {}

  /// Milliseconds of the device's time between the begin and the end of what `work` queues. Blocks.
  virtual double time(const std::function<void()>& work) {
    wait();
    const auto start = std::chrono::steady_clock::now();
    work();
    wait();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }

  /// How many steps the trainer may queue before it reads the first one's results.
  virtual int steps_in_flight() const { return 1; }
};

}  // namespace andrea
