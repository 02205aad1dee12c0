#include "kernels/cuda/cuda_device.h"

#include <cstdlib>
#include <string>

#include "engine/errors.h"
#include "kernels/backend.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/gpu_refusal.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/lt_library.h"

namespace andrea::cuda {
namespace {

int attribute(cudaDeviceAttr name, int device) {
  int value = 0;
  ANDREA_CUDA_CHECK(cudaDeviceGetAttribute(&value, name, device));
  return value;
}

std::string capability_of(int device) {
  return std::to_string(attribute(cudaDevAttrComputeCapabilityMajor, device)) + "." +
         std::to_string(attribute(cudaDevAttrComputeCapabilityMinor, device));
}

std::string mib(std::size_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

std::string device_unavailable_reason() {
  GpuFacts facts;
  facts.architectures = ANDREA_CUDA_ARCHITECTURES;
  (void)cudaDriverGetVersion(&facts.driver);
  (void)cudaRuntimeGetVersion(&facts.runtime);
  if (facts.driver == 0) return gpu_refusal(facts);
  const cudaError_t counted = cudaGetDeviceCount(&facts.gpus);
  (void)cudaGetLastError();
  facts.driver_too_old = counted == cudaErrorInsufficientDriver;
  if (counted == cudaErrorNoDevice)
    facts.gpus = 0;
  else if (counted != cudaSuccess)
    facts.start_error = cudaGetErrorString(counted);
  if (counted == cudaSuccess && facts.gpus > 0) {
    cudaDeviceProp properties{};
    if (const cudaError_t status = cudaGetDeviceProperties(&properties, 0); status != cudaSuccess) {
      (void)cudaGetLastError();
      facts.gpu_error = cudaGetErrorString(status);
    }
    facts.name = properties.name;
    facts.major = properties.major;
    facts.minor = properties.minor;
    facts.kernels_fit = properties.major >= 8 && kernels_fit_device();
  }
  if (std::string reason = gpu_refusal(facts); !reason.empty()) return reason;
  try {
    (void)lt_library();
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "";
}

CudaDevice::CudaDevice(Precision precision, bool allow_tf32)
    : precision_(precision), allow_tf32_(allow_tf32) {
  ANDREA_CUDA_CHECK(cudaSetDevice(device_));
  ANDREA_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  ANDREA_CUDA_CHECK(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking));
  for (cudaEvent_t* event : {&work_done_, &snapshots_done_})
    ANDREA_CUDA_CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming | cudaEventBlockingSync));
  ANDREA_CUDA_CHECK(cudaEventRecord(snapshots_done_, copies_));
  // Blocking waits: the host thread sleeps instead of burning a core; a queued step hides the wake-up.
  for (cudaEvent_t& event : marks_)
    ANDREA_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync));
  const char* const portable = std::getenv("ANDREA_PORTABLE_KERNELS");
  const bool hopper =
      capability_of(device_) == "9.0" && (portable == nullptr || std::string(portable) != "1");
  hopper_kernels_ = kWithHopper && hopper;
  int multiprocessors = 0;
  ANDREA_CUDA_CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device_));
  gemm_ = std::make_unique<GemmTable>(precision, allow_tf32, hopper ? multiprocessors : 0);
}

CudaDevice::~CudaDevice() {
  (void)cudaStreamSynchronize(stream_);
  for (const auto& entry : records_)
    if (entry.second.graph != nullptr) (void)cudaGraphExecDestroy(entry.second.graph);
  for (cudaEvent_t event : marks_)
    if (event != nullptr) (void)cudaEventDestroy(event);
  (void)cudaStreamSynchronize(copies_);
  for (cudaEvent_t event : timer_)
    if (event != nullptr) (void)cudaEventDestroy(event);
  (void)cudaEventDestroy(work_done_);
  (void)cudaEventDestroy(snapshots_done_);
  (void)cudaStreamDestroy(copies_);
  (void)cudaStreamDestroy(stream_);
}

std::string CudaDevice::capability() const { return capability_of(device_); }

DeviceInfo CudaDevice::info() const {
  cudaDeviceProp properties{};
  ANDREA_CUDA_CHECK(cudaGetDeviceProperties(&properties, device_));
  int driver = 0;
  int runtime = 0;
  ANDREA_CUDA_CHECK(cudaDriverGetVersion(&driver));
  ANDREA_CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  DeviceInfo info;
  info.backend = "cuda";
  info.name = properties.name;
  char bus_id[32] = {};
  ANDREA_CUDA_CHECK(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, device_));
  info.pci_bus_id = bus_id;
  info.arithmetic = std::string(precision_name(precision_)) + (allow_tf32_ ? " with TF32" : "") +
                    (hopper_kernels_ ? ", kernels for sm_90a" : "") + ", sm " + capability_of(device_) +
                    " x " + std::to_string(properties.multiProcessorCount) + ", " + gemm_->version() +
                    ", kernels " + kKernelVersion;
  info.details.push_back("compute capability " + capability_of(device_) + ", " +
                         std::to_string(properties.multiProcessorCount) + " multiprocessors, L2 " +
                         mib(static_cast<std::size_t>(properties.l2CacheSize)));
  info.details.push_back("driver for CUDA " + cuda_version_text(driver) + ", run-time " +
                         cuda_version_text(runtime) + ", " + gemm_->version() + " (" + lt_library().path +
                         ")");
  info.gemm = gemm_->choices();
  ANDREA_CUDA_CHECK(cudaMemGetInfo(&info.free_bytes, &info.total_bytes));
  return info;
}

void* CudaDevice::allocate(std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, bytes == 0 ? 256 : bytes);
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    std::size_t free = 0;
    std::size_t total = 0;
    ANDREA_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    throw OutOfMemory("the GPU refused " + std::to_string(bytes) + " bytes (" + mib(bytes) + "); " +
                          mib(free) + " of " + mib(total) + " are free: use a smaller batch, or free the GPU",
                      bytes, free);
  }
  ANDREA_CUDA_CHECK(status);
  return memory;
}

void CudaDevice::release(void* memory) noexcept { (void)cudaFree(memory); }

void* CudaDevice::allocate_host(std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaMallocHost(&memory, bytes == 0 ? 256 : bytes);
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    throw OutOfMemory("the system refused " + std::to_string(bytes) + " bytes (" + mib(bytes) +
                          ") of pinned host memory: free memory, or raise the "
                          "limit on locked memory",
                      bytes, 0);
  }
  ANDREA_CUDA_CHECK(status);
  return memory;
}

void CudaDevice::release_host(void* memory) noexcept { (void)cudaFreeHost(memory); }

void CudaDevice::upload(void* device, const void* host, std::size_t bytes) {
  if (bytes > 0) ANDREA_CUDA_CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_));
}

void CudaDevice::download(void* host, const void* device, std::size_t bytes) {
  if (bytes > 0) ANDREA_CUDA_CHECK(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_));
}

void CudaDevice::fill_zero(void* device, std::size_t bytes) {
  if (bytes > 0) ANDREA_CUDA_CHECK(cudaMemsetAsync(device, 0, bytes, stream_));
}

void CudaDevice::snapshot(void* host, const void* device, std::size_t bytes) {
  if (bytes == 0) return;
  ANDREA_CUDA_CHECK(cudaEventRecord(work_done_, stream_));
  ANDREA_CUDA_CHECK(cudaStreamWaitEvent(copies_, work_done_, cudaEventWaitDefault));
  ANDREA_CUDA_CHECK(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, copies_));
  ANDREA_CUDA_CHECK(cudaEventRecord(snapshots_done_, copies_));
}

void CudaDevice::await_snapshots() {
  // In a graph the wait is a node that looks at the event anew at every launch.
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  ANDREA_CUDA_CHECK(cudaStreamIsCapturing(stream_, &status));
  const unsigned flags =
      status == cudaStreamCaptureStatusActive ? cudaEventWaitExternal : cudaEventWaitDefault;
  ANDREA_CUDA_CHECK(cudaStreamWaitEvent(stream_, snapshots_done_, flags));
}

void CudaDevice::wait_snapshots() { ANDREA_CUDA_CHECK(cudaEventSynchronize(snapshots_done_)); }

void CudaDevice::run(std::int64_t key, const std::function<void()>& work) {
  Record& record = records_[key];
  if (!record.seen) {
    work();
    record.seen = true;
    return;
  }
  if (record.graph == nullptr) {
    ANDREA_CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    cudaGraph_t graph = nullptr;
    try {
      work();
    } catch (...) {
      (void)cudaStreamEndCapture(stream_, &graph);  // leave the stream usable, report the first error
      if (graph != nullptr) (void)cudaGraphDestroy(graph);
      (void)cudaGetLastError();
      throw;
    }
    ANDREA_CUDA_CHECK(cudaStreamEndCapture(stream_, &graph));
    const cudaError_t status = cudaGraphInstantiate(&record.graph, graph, 0);
    (void)cudaGraphDestroy(graph);
    ANDREA_CUDA_CHECK(status);
  }
  ANDREA_CUDA_CHECK(cudaGraphLaunch(record.graph, stream_));
}

double CudaDevice::time(const std::function<void()>& work) {
  for (cudaEvent_t& event : timer_)
    if (event == nullptr) ANDREA_CUDA_CHECK(cudaEventCreate(&event));
  wait();
  ANDREA_CUDA_CHECK(cudaEventRecord(timer_[0], stream_));
  work();
  ANDREA_CUDA_CHECK(cudaEventRecord(timer_[1], stream_));
  ANDREA_CUDA_CHECK(cudaEventSynchronize(timer_[1]));
  float ms = 0;
  ANDREA_CUDA_CHECK(cudaEventElapsedTime(&ms, timer_[0], timer_[1]));
  return ms;
}

void CudaDevice::mark(int slot) { ANDREA_CUDA_CHECK(cudaEventRecord(marks_[slot], stream_)); }

void CudaDevice::wait_mark(int slot) { ANDREA_CUDA_CHECK(cudaEventSynchronize(marks_[slot])); }
void CudaDevice::wait() { ANDREA_CUDA_CHECK(cudaStreamSynchronize(stream_)); }

}  // namespace andrea::cuda
