// The exception family under the same names in Python: andrea.Error and its children.
#include "engine/errors.h"

#include <nanobind/nanobind.h>

#include "bindings/topics.h"

namespace nb = nanobind;

namespace andrea {
namespace {

// nb::exception registers when it is made; the object itself is not needed.
template <class E>
nb::object add(nb::module_& m, const char* name, nb::handle base) {
  nb::exception<E> kind(m, name, base);
  return kind;
}

}  // namespace

void init_errors(nb::module_& m) {
  // Translators run newest first, so the base class is registered first and caught last.
  const nb::object base = add<Error>(m, "Error", PyExc_RuntimeError);
  add<ConfigError>(m, "ConfigError", base);
  add<DataError>(m, "DataError", base);
  add<CheckpointError>(m, "CheckpointError", base);
  add<IoError>(m, "IoError", base);
  add<DeviceError>(m, "DeviceError", base);
  add<OutOfMemory>(m, "OutOfMemory", base);
}

}  // namespace andrea
