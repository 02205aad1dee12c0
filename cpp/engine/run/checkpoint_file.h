// step_NNNNNN.bin: the single contract for weights and moments. docs/CHECKPOINT.md has the layout.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace andrea {

/// Little-endian [int32 step][int32 n_params][float32 weights][float32 m][float32 v], in canonical order.
struct CheckpointHeader {
  std::int32_t step = 0;  ///< finished steps = index of the next one
  std::int32_t n_params = 0;
};

/// Writes a file at `path` atomically: temporary file beside it, `fill` writes into it through the sink,
/// fsync, rename, fsync of the directory. IoError on failure, with the temporary file removed; free space for
/// `bytes` is checked before. Returns the XXH64 of what was written.
using Sink = std::function<void(const void* data, std::size_t bytes)>;
std::uint64_t write_file_atomically(const std::string& path, std::size_t bytes,
                                    const std::function<void(const Sink&)>& fill);

/// Gives the n_params floats of one section to the sink, in pieces.
using Section = std::function<void(const Sink&)>;
/// Writes weights, m and v; returns the hash of the file. CheckpointError, and no file, if a value is not
/// finite.
std::uint64_t write_checkpoint(const std::string& path, std::int32_t step, std::int32_t n_params,
                               const Section& weights, const Section& m, const Section& v);
/// The same from arrays [n_params each].
std::uint64_t write_checkpoint(const std::string& path, std::int32_t step, std::int32_t n_params,
                               const float* weights, const float* m, const float* v);

/// Reads and checks: length, n_params (CheckpointError says both numbers), non-finite values (says which
/// tensor element). `hash`, if not null, receives the XXH64 of the file.
CheckpointHeader read_checkpoint(const std::string& path, std::int32_t expected_n_params,
                                 std::vector<float>* weights, std::vector<float>* m, std::vector<float>* v,
                                 std::uint64_t* hash);

}  // namespace andrea
