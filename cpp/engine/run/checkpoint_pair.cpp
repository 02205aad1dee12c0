#include "engine/run/checkpoint_pair.h"

#include <fcntl.h>

#include <vector>

#include "engine/errors.h"
#include "engine/files/json_text.h"
#include "engine/hash/xxh64.h"
#include "engine/run/checkpoint_file.h"
#include "engine/run/run_directory.h"

namespace andrea {
namespace {

constexpr std::size_t kReadBytes = std::size_t{4} << 20;
// A state holds records of one phase at most; anything near this is not a state.
constexpr std::int64_t kLargestState = std::int64_t{1} << 30;

std::string read_text(const std::string& path) {
  PosixFile file = PosixFile::open(path, O_RDONLY | O_NONBLOCK);
  const std::int64_t size = file.size();
  if (size > kLargestState) throw CheckpointError(path + " is too large to be a state file");
  std::string text(static_cast<std::size_t>(size), '\0');
  text.resize(file.read(text.data(), text.size()));
  return text;
}

/// Is this one of the names that a run with this state gives to a .bin?
bool named_by_run(const std::string& name, const RunState& state) {
  if (name == step_stem(state.step) + ".bin") return true;
  std::vector<JsonFault> faults;
  const std::string run = parse_json(state.config, &faults).value("name", "");
  return name == run + ".bin" || name == run + "-best.bin";
}

}  // namespace

std::uint64_t hash_of(const PosixFile& file) {
  std::vector<unsigned char> block(kReadBytes);
  Xxh64 hash;
  std::int64_t at = 0;
  while (const std::size_t n = file.read_at(block.data(), block.size(), at)) {
    hash.update(block.data(), n);
    at += static_cast<std::int64_t>(n);
  }
  return hash.digest();
}

RunState read_state(const std::string& path, std::int64_t step) {
  RunState state = parse_run_state(read_text(path), path);
  if (state.step != step) throw CheckpointError(path + " is the state of step " + std::to_string(state.step));
  return state;
}

std::string hash_fault(const PosixFile& bin, const RunState& state) {
  const std::uint64_t hash = hash_of(bin);
  return hash == state.bin_hash
             ? ""
             : "has hash " + hash_hex(hash) + ", its state says " + hash_hex(state.bin_hash);
}

StateBeside state_beside(const std::string& bin_path) {
  const PosixFile bin = PosixFile::open(bin_path, O_RDONLY | O_NONBLOCK);
  const std::string name = base_name(bin_path);
  std::int64_t step = step_of(name, ".bin");
  std::string path;
  const auto look = [&](std::int64_t wanted) {
    step = wanted;
    path = directory_of(bin_path) + "/" + step_stem(step) + ".state.json";
    return file_exists(path);
  };
  if (step < 0 || !look(step)) {
    CheckpointHeader header;
    if (bin.read_at(&header, sizeof header, 0) != sizeof header || header.step < 0)
      return {"", "its header names no step"};
    if (!look(header.step)) return {"", "there is no " + step_stem(step) + ".state.json beside it"};
  }
  RunState state;
  try {
    state = read_state(path, step);
  } catch (const Error& error) {
    return {"", error.what()};
  }
  const std::string fault = hash_fault(bin, state);
  if (fault.empty()) return {path, ""};
  if (!named_by_run(name, state)) return {"", path + " was written with another .bin"};
  throw CheckpointError(bin_path + " " + fault +
                        ": one of them is damaged or from another run; use an older checkpoint, or, if you "
                        "know the .bin to be whole, move " +
                        path + " away and use the .bin alone");
}

}  // namespace andrea
