// Paths across the border.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace andrea {

/// A str, bytes or os.PathLike as the bytes of a path; TypeError for anything else.
inline std::string path_of(nanobind::handle path) {
  const nanobind::object bytes = nanobind::module_::import_("os").attr("fsencode")(path);
  return {PyBytes_AsString(bytes.ptr()), static_cast<std::size_t>(PyBytes_Size(bytes.ptr()))};
}

}  // namespace andrea
