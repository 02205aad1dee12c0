// Arrays across the border: checked ids in, float32 arrays out.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace andrea {

/// Token ids as the engine takes them.
struct IdArray {
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> shape;
};

/// Reads anything NumPy understands as an array of integers. TypeError for other values, ValueError for a
/// wrong number of dimensions; `what` begins the message. Values outside int32 are a DataError.
IdArray read_ids(nanobind::handle values, std::size_t ndim, const char* what);

/// The same for ids [B, T+1]: at least one row, at least two columns.
IdArray read_rows(nanobind::handle values, const char* what);

/// Reads float values of exactly this shape as float32. ValueError names both shapes.
std::vector<float> read_floats(nanobind::handle values, const std::vector<std::int64_t>& shape,
                               const std::string& what);

/// A NumPy array that owns the values.
nanobind::object to_numpy(std::vector<float>&& values, const std::vector<std::int64_t>& shape);
nanobind::object to_numpy(std::vector<double>&& values, const std::vector<std::int64_t>& shape);
nanobind::object to_numpy(std::vector<std::int64_t>&& values, const std::vector<std::int64_t>& shape);

}  // namespace andrea
