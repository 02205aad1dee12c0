// The exception family under the same names in Python: andrea.Error and its children.
#include "engine/errors.h"

#include <nanobind/nanobind.h>

#include "bindings/topics.h"

namespace nb = nanobind;

namespace andrea {

void init_errors(nb::module_& m) {
  // Translators run newest first, so the base class is registered first and caught last.
  auto base = nb::exception<Error>(m, "Error", PyExc_RuntimeError);
  nb::exception<ConfigError>(m, "ConfigError", base.ptr());
  nb::exception<DataError>(m, "DataError", base.ptr());
  nb::exception<CheckpointError>(m, "CheckpointError", base.ptr());
  nb::exception<IoError>(m, "IoError", base.ptr());
  nb::exception<DeviceError>(m, "DeviceError", base.ptr());
  nb::exception<OutOfMemory>(m, "OutOfMemory", base.ptr());
}

}  // namespace andrea
