#include "engine/run/run_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <system_error>

#include "engine/errors.h"
#include "engine/files/posix_file.h"
#include "engine/files/temporary_file.h"
#include "engine/run/checkpoint_file.h"
#include "engine/run/checkpoint_pair.h"

namespace andrea {
namespace {

constexpr char kLockName[] = ".andrea.lock";
constexpr std::size_t kReadBytes = std::size_t{4} << 20;

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

/// Names in a directory, unsorted.
std::vector<std::string> entries(const std::string& path) {
  DIR* directory = ::opendir(path.c_str());
  if (directory == nullptr) throw_io_error("list", path, errno);
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(directory)) names.emplace_back(entry->d_name);
  ::closedir(directory);
  return names;
}

std::set<std::int64_t> steps_with(const std::string& path, const std::string& end) {
  std::set<std::int64_t> steps;
  for (const std::string& name : entries(path))
    if (const std::int64_t step = step_of(name, end); step >= 0) steps.insert(step);
  return steps;
}

/// A file that only a run leaves behind; empty if there is none.
std::string trace_of_a_run(const std::string& path) {
  std::vector<std::string> names = entries(path);
  std::sort(names.begin(), names.end());
  for (const std::string& name : names)
    if (step_of(name, ".bin") >= 0 || step_of(name, ".state.json") >= 0 || ends_with(name, ".loss.json") ||
        ends_with(name, ".samples.json") || ends_with(name, ".rows.jsonl"))
      return name;
  return "";
}

void refuse_a_run(const std::string& path) {
  if (const std::string found = trace_of_a_run(path); !found.empty())
    throw ConfigError(path + " holds a run already (" + found +
                      "); give --resume to go on with it, or another directory");
}

/// A directory or a device under a name that the run will write: better said before the first step.
void refuse_in_the_way(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    throw IoError(path + " is no file, and the run writes its own there; move it away");
}

/// Length and header of a .bin; CheckpointError says what is wrong.
CheckpointHeader check_bin(const PosixFile& file, std::int64_t step) {
  CheckpointHeader header;
  const std::int64_t size = file.size();
  if (file.read_at(&header, sizeof header, 0) != sizeof header || header.n_params < 1)
    throw CheckpointError("the .bin has " + std::to_string(size) + " bytes and no good header");
  const std::int64_t expected = 8 + 12 * std::int64_t{header.n_params};
  if (size != expected)
    throw CheckpointError("the .bin has " + std::to_string(size) + " bytes, " +
                          std::to_string(header.n_params) + " parameters make " + std::to_string(expected));
  if (header.step != step) throw CheckpointError("the .bin is of step " + std::to_string(header.step));
  return header;
}

}  // namespace

std::int64_t step_of(const std::string& name, const std::string& end) {
  if (name.compare(0, 5, "step_") != 0 || !ends_with(name, end) || name.size() < 5 + end.size()) return -1;
  const std::string digits = name.substr(5, name.size() - 5 - end.size());
  if (digits.size() < 6 || digits.size() > 10 || digits.find_first_not_of("0123456789") != std::string::npos)
    return -1;
  const std::int64_t step = std::stoll(digits);
  return step_stem(step) + end == name ? step : -1;
}

std::string step_stem(std::int64_t step) {
  char text[32];
  std::snprintf(text, sizeof text, "step_%06lld", static_cast<long long>(step));
  return text;
}

RunDirectory::RunDirectory(const std::string& path, const std::string& name, bool resume)
    : path_(path), name_(name) {
  std::error_code error;
  std::filesystem::create_directories(path_, error);
  if (error) throw_io_error("make the directory", path_, error.value());
  if (!resume) refuse_a_run(path_);  // before the lock file is made: a directory refused stays as it was
  for (const char* suffix :
       {".bin", "-best.bin", ".state.json", ".loss.json", ".samples.json", ".rows.jsonl"})
    refuse_in_the_way(file(suffix));

  const std::string lock_path = path_ + "/" + kLockName;
  PosixFile lock = PosixFile::open(lock_path, O_RDWR | O_CREAT);
  while (::flock(lock.fd(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK)
      throw IoError("cannot lock " + lock_path + ": " + std::strerror(errno) +
                    "; this file system has no locks: choose a run directory on a local disk");
    char text[32] = {};
    lock.read_at(text, sizeof text - 1, 0);
    const std::string pid(text, std::strcspn(text, "\n"));
    throw IoError("another process " + (pid.empty() ? "" : "(pid " + pid + ") ") + "writes to " + path_ +
                  "; wait until it ends, stop it, or choose another directory");
  }
  if (!resume) refuse_a_run(path_);  // again: another run may have come and gone in between
  const std::string pid = std::to_string(::getpid()) + "\n";
  lock.truncate(0);
  lock.write_at(pid.data(), pid.size(), 0);
  // What a killed run left half-written; no other run writes here now. An export into this directory may.
  const std::string run_files[] = {".step_", "." + name_ + ".bin.", "." + name_ + "-best.bin.",
                                   "." + name_ + ".state.json."};
  for (const std::string& entry : entries(path_)) {
    const bool ours = std::any_of(std::begin(run_files), std::end(run_files), [&](const std::string& begin) {
      return entry.compare(0, begin.size(), begin) == 0;
    });
    if (ours && ends_with(entry, ".tmp")) remove_file(path_ + "/" + entry);
  }
  lock_ = std::make_unique<PosixFile>(std::move(lock));
}

RunDirectory::~RunDirectory() = default;

std::string RunDirectory::file(const std::string& suffix) const { return path_ + "/" + name_ + suffix; }

std::vector<std::int64_t> RunDirectory::steps(const std::string& path) {
  const std::set<std::int64_t> found = steps_with(path, ".state.json");
  return {found.rbegin(), found.rend()};
}

std::string RunDirectory::bin_path(std::int64_t step) const { return path_ + "/" + step_stem(step) + ".bin"; }

std::string RunDirectory::state_path(std::int64_t step) const {
  return path_ + "/" + step_stem(step) + ".state.json";
}

std::optional<Resumable> RunDirectory::newest(std::int32_t n_params) const {
  const std::set<std::int64_t> states = steps_with(path_, ".state.json");
  const std::set<std::int64_t> bins = steps_with(path_, ".bin");
  std::set<std::int64_t> all = states;
  all.insert(bins.begin(), bins.end());

  Resumable result;
  for (auto step = all.rbegin(); step != all.rend(); ++step) {
    std::string reason;
    try {
      if (states.count(*step) == 0) throw CheckpointError("its state file is missing");
      if (bins.count(*step) == 0) throw CheckpointError("its .bin is missing");
      RunState state = read_state(state_path(*step), *step);
      const PosixFile bin = PosixFile::open(bin_path(*step), O_RDONLY | O_NONBLOCK);
      const CheckpointHeader header = check_bin(bin, *step);
      if (const std::string fault = hash_fault(bin, state); !fault.empty())
        throw CheckpointError("the .bin " + fault);
      // A whole checkpoint of another shape is no damage: an older one would not fit either.
      if (header.n_params != n_params)
        throw ConfigError(bin_path(*step) + " holds " + std::to_string(header.n_params) +
                          " parameters, the model of the experiment has " + std::to_string(n_params) +
                          "; use the experiment file this run was started with");
      result.state = std::move(state);
      result.bin_path = bin_path(*step);
      return result;
    } catch (const CheckpointError& error) {
      reason = error.what();
    } catch (const IoError& error) {
      reason = error.what();
    }
    result.passed_over.push_back(step_stem(*step) + ": " + reason);
  }
  // A first checkpoint that was cut off leaves at most one lone .bin: then there is nothing to resume yet.
  if (states.empty() && bins.size() <= 1) return std::nullopt;
  std::string message = "no checkpoint in " + path_ + " can be resumed:";
  for (const std::string& reason : result.passed_over) message += "\n  " + reason;
  throw CheckpointError(message +
                        "\nnothing was deleted; to go on from the weights alone, give --from and a .bin");
}

void RunDirectory::prepare(std::int64_t step) {
  if (remove_file(state_path(step))) sync_directory(path_);
}

void RunDirectory::commit(const RunState& state) {
  const std::string text = to_json(state);
  write_file_atomically(state_path(state.step), text.size(),
                        [&](const Sink& sink) { sink(text.data(), text.size()); });
}

void RunDirectory::link(std::int64_t step, const std::string& suffix) {
  const std::string source = bin_path(step);
  const std::string target = file(suffix + ".bin");
  const std::string temporary = temporary_beside(target);
  remove_file(temporary);
  if (::link(source.c_str(), temporary.c_str()) == 0) {
    if (std::rename(temporary.c_str(), target.c_str()) != 0) {
      const int reason = errno;
      ::unlink(temporary.c_str());
      throw_io_error("put the new file in its place,", target, reason);
    }
    // rename() does nothing when both names are links of one file already.
    remove_file(temporary);
    sync_directory(path_);
    return;
  }
  if (errno == ENOENT) throw_io_error("link", source, errno);
  // No hard links here (FAT, some network file systems): a copy serves as well.
  PosixFile file = PosixFile::open(source, O_RDONLY);
  write_file_atomically(target, static_cast<std::size_t>(file.size()), [&](const Sink& sink) {
    std::vector<unsigned char> block(kReadBytes);
    while (const std::size_t n = file.read(block.data(), block.size())) sink(block.data(), n);
  });
}

void RunDirectory::prune(const CheckpointConfig& config, std::int64_t best_step, std::int64_t final_step) {
  const std::int64_t keep_last = std::max<std::int64_t>(2, config.keep_last);
  std::vector<std::int64_t> candidates;
  std::int64_t whole = 0;
  for (const std::int64_t step : steps(path_)) {  // newest first
    try {
      read_state(state_path(step), step);
      check_bin(PosixFile::open(bin_path(step), O_RDONLY | O_NONBLOCK), step);
    } catch (const Error&) {
      // Damaged: neither counted nor deleted. A state whose .bin is gone is what an interrupted prune leaves.
      if (whole >= 2 && !file_exists(bin_path(step))) candidates.push_back(step);
      continue;
    }
    const bool landmark = step == best_step || step == final_step ||
                          (config.keep_every > 0 && step > 0 && step % config.keep_every == 0);
    if (++whole > keep_last && !landmark) candidates.push_back(step);
  }
  std::string failure;
  for (const std::int64_t step : candidates) {
    try {
      // The large file first: an interruption then leaves a small one, which the next prune takes.
      remove_file(bin_path(step));
      remove_file(state_path(step));
    } catch (const IoError& error) {
      failure = error.what();
    }
  }
  if (!failure.empty()) throw IoError(failure);
}

}  // namespace andrea
