// Makes a back end: a device with its operations.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "kernels/ops.h"

namespace andrea {

struct BackendRequest {
  std::string device = "auto";  ///< "cpu", "cuda", or "auto": cuda where there is one, else cpu
  Precision precision = Precision::kFp32;
  bool allow_tf32 = false;
  int threads =
      0;  ///< CPU worker threads; 0: one for each core this process may use. Never changes the bits.
};

struct Backend {
  std::unique_ptr<Device> device;
  std::unique_ptr<Ops> ops;  ///< destroyed before the device
  std::string note;          ///< why "auto" chose as it did; empty if there is nothing to say
};

/// Throws DeviceError if the device is not there or not in this build, ConfigError if it cannot do the
/// precision.
Backend make_backend(const BackendRequest& request);

/// Devices that make_backend can make here and now, "cpu" first.
std::vector<std::string> backends_present();

/// One sentence for each back end that is not present: "cuda: built without it", "cuda: no GPU found (...)".
std::vector<std::string> backends_missing();

const char* precision_name(Precision precision);

}  // namespace andrea
