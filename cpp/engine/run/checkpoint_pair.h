// A .bin and the state that was written with it: do they belong together? The one rule for all who load a
// model: resume, --from, `andrea sample`, `chat`, `eval` and `export`.
#pragma once

#include <cstdint>
#include <string>

#include "engine/files/posix_file.h"
#include "engine/run/run_state.h"

namespace andrea {

/// XXH64 of all bytes of an open file, read in blocks.
std::uint64_t hash_of(const PosixFile& file);

/// Reads a state file and checks that it is the state of `step`. CheckpointError or IoError.
RunState read_state(const std::string& path, std::int64_t step);

/// "has hash X, its state says Y" if the .bin is not the one its state was written with; else empty.
std::string hash_fault(const PosixFile& bin, const RunState& state);

/// What the files beside a .bin tell of it.
struct StateBeside {
  std::string path;    ///< of the state that was written with this very .bin; empty: there is none
  std::string reason;  ///< why there is none
};

/// Looks beside a .bin for its state: by the step in its name, else by the step in its header. A .bin without
/// a state, or beside one that cannot be read, stands alone and is no error. CheckpointError: the state of
/// its step, or of the run whose NAME.bin or NAME-best.bin it is, was written with other bytes.
StateBeside state_beside(const std::string& bin_path);

}  // namespace andrea
