#include "bindings/arrays.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <limits>
#include <utility>

#include "engine/errors.h"

namespace nb = nanobind;

namespace andrea {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::vector<std::int64_t> shape_of(nb::handle array) {
  std::vector<std::int64_t> shape;
  for (nb::handle extent : array.attr("shape")) shape.push_back(nb::cast<std::int64_t>(extent));
  return shape;
}

// A C-contiguous array of this dtype, made by NumPy.
nb::object as_array(nb::handle values, const char* dtype) {
  return nb::module_::import_("numpy").attr("ascontiguousarray")(values, nb::str(dtype));
}

template <class T>
nb::object own(std::vector<T>&& values, const std::vector<std::int64_t>& shape) {
  auto* kept = new std::vector<T>(std::move(values));
  nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  const std::vector<std::size_t> extents(shape.begin(), shape.end());
  return nb::cast(nb::ndarray<nb::numpy, T>(kept->data(), extents.size(), extents.data(), owner));
}

}  // namespace

IdArray read_ids(nb::handle values, std::size_t ndim, const char* what) {
  const nb::object given = nb::module_::import_("numpy").attr("asarray")(values);
  IdArray result;
  result.shape = shape_of(given);
  if (result.shape.size() != ndim)
    throw nb::value_error((std::string(what) + ": an array of " + std::to_string(ndim) +
                           " dimensions is needed, the shape is " + shape_text(result.shape))
                              .c_str());
  const auto size = nb::cast<std::size_t>(given.attr("size"));
  const auto kind = nb::cast<std::string>(given.attr("dtype").attr("kind"));
  if (size > 0 && kind != "i" && kind != "u")
    throw nb::type_error((std::string(what) + ": token ids are integers, these are " +
                          nb::cast<std::string>(given.attr("dtype").attr("name")))
                             .c_str());
  const auto wide = nb::cast<nb::ndarray<const std::int64_t, nb::c_contig>>(as_array(given, "int64"));
  result.ids.resize(size);
  for (std::size_t i = 0; i < size; ++i) {
    const std::int64_t id = wide.data()[i];
    if (id < 0 || id > std::numeric_limits<std::int32_t>::max())
      throw DataError(std::string(what) + ": token id " + std::to_string(id) + " at position " +
                      std::to_string(i) + " cannot be; ids count from 0 to V-1");
    result.ids[i] = static_cast<std::int32_t>(id);
  }
  return result;
}

IdArray read_rows(nb::handle values, const char* what) {
  IdArray rows = read_ids(values, 2, what);
  if (rows.shape[0] < 1 || rows.shape[1] < 2)
    throw nb::value_error((std::string(what) + ": ids [B, T+1] need a row and two columns at least, are " +
                           shape_text(rows.shape))
                              .c_str());
  return rows;
}

std::vector<float> read_floats(nb::handle values, const std::vector<std::int64_t>& shape,
                               const std::string& what) {
  const nb::object given = nb::module_::import_("numpy").attr("asarray")(values);
  const std::vector<std::int64_t> found = shape_of(given);
  if (found != shape)
    throw nb::value_error(
        (what + ": the shape must be " + shape_text(shape) + ", is " + shape_text(found)).c_str());
  const auto kind = nb::cast<std::string>(given.attr("dtype").attr("kind"));
  if (kind != "f" && kind != "i" && kind != "u")
    throw nb::type_error(
        (what + ": numbers are needed, these are " + nb::cast<std::string>(given.attr("dtype").attr("name")))
            .c_str());
  const auto array = nb::cast<nb::ndarray<const float, nb::c_contig>>(as_array(given, "float32"));
  return {array.data(), array.data() + array.size()};
}

nb::object to_numpy(std::vector<float>&& values, const std::vector<std::int64_t>& shape) {
  return own(std::move(values), shape);
}
nb::object to_numpy(std::vector<double>&& values, const std::vector<std::int64_t>& shape) {
  return own(std::move(values), shape);
}
nb::object to_numpy(std::vector<std::int64_t>&& values, const std::vector<std::int64_t>& shape) {
  return own(std::move(values), shape);
}

}  // namespace andrea
