// The exception family under the same names in Python: andrea.Error and its children.
#include "engine/errors.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <exception>
#include <string>

#include "bindings/topics.h"

namespace nb = nanobind;

namespace andrea {
namespace {

// Messages quote file names and file contents, which may be any bytes; Python's str may not.
void set_error(PyObject* kind, const char* what) {
  const nb::object message =
      nb::steal(PyUnicode_DecodeUTF8(what, static_cast<Py_ssize_t>(std::strlen(what)), "replace"));
  if (message.is_valid()) PyErr_SetObject(kind, message.ptr());
}

template <class E>
nb::object add(nb::module_& m, const char* name, nb::handle base) {
  // The module's own name: it has another one while its stub is written.
  const std::string full = nb::cast<std::string>(m.attr("__name__")) + "." + name;
  nb::object kind = nb::steal(PyErr_NewException(full.c_str(), base.ptr(), nullptr));
  if (!kind.is_valid()) nb::raise_python_error();
  m.attr(name) = kind;
  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void* payload) {
        try {
          std::rethrow_exception(thrown);
        } catch (const E& error) {
          set_error(static_cast<PyObject*>(payload), error.what());
        }
      },
      kind.ptr());
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
