#include "engine/run/checkpoint_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "engine/errors.h"
#include "engine/files/posix_file.h"
#include "engine/files/temporary_file.h"
#include "engine/hash/xxh64.h"

namespace andrea {
namespace {

constexpr std::size_t kHeaderBytes = 8;
constexpr std::size_t kBlockBytes = std::size_t{4} << 20;
// Room the file system itself may need for a new file and its entry.
constexpr std::uint64_t kSpareBytes = std::uint64_t{1} << 16;
const char* const kSectionNames[3] = {"weights", "m", "v"};

std::uint64_t file_bytes(std::int32_t n_params) {
  return kHeaderBytes + 12 * static_cast<std::uint64_t>(n_params);
}

void check_free_space(const std::string& directory, const std::string& path, std::uint64_t bytes) {
  struct statvfs space{};
  if (::statvfs(directory.c_str(), &space) != 0) throw_io_error("look for free space in", directory, errno);
  const std::uint64_t free = static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize;
  if (free < bytes + kSpareBytes)
    throw IoError("cannot write " + path + ": it needs " + std::to_string(bytes) + " bytes and " + directory +
                  " has " + std::to_string(free) +
                  " free; free space there, or keep fewer checkpoints (checkpoint.keep_last)");
}

/// Index of the first value that is NaN or infinite; n if there is none.
std::size_t first_non_finite(const float* values, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i)
    if (!std::isfinite(values[i])) return i;
  return n;
}

std::string non_finite_message(const char* section, std::uint64_t index, float value) {
  char text[96];
  std::snprintf(text, sizeof text, "element %llu of %s is %s", static_cast<unsigned long long>(index),
                section, std::isnan(value) ? "NaN" : (value > 0 ? "+infinity" : "-infinity"));
  return text;
}

}  // namespace

std::uint64_t write_file_atomically(const std::string& path, std::size_t bytes,
                                    const std::function<void(const Sink&)>& fill) {
  refuse_to_replace_special(path);
  const std::string directory = directory_of(path);
  const std::string temporary = temporary_beside(path);
  check_free_space(directory, path, bytes);
  remove_file(temporary);
  PosixFile file = PosixFile::open(temporary, O_WRONLY | O_CREAT | O_EXCL);
  try {
    Xxh64 hash;
    fill([&](const void* data, std::size_t n) {
      hash.update(data, n);
      file.write(data, n);
    });
    file.sync();
    file.close();
    if (std::rename(temporary.c_str(), path.c_str()) != 0)
      throw_io_error("put the new file in its place,", path, errno);
    sync_directory(directory);
    return hash.digest();
  } catch (...) {
    ::unlink(temporary.c_str());  // gone already if the rename was done
    throw;
  }
}

std::uint64_t write_checkpoint(const std::string& path, std::int32_t step, std::int32_t n_params,
                               const Section& weights, const Section& m, const Section& v) {
  if (step < 0 || n_params < 1)
    throw CheckpointError("cannot write " + path + ": step " + std::to_string(step) + " and " +
                          std::to_string(n_params) +
                          " parameters; the format holds steps from 0 and 1 to 2147483647 parameters");
  const Section* const sections[3] = {&weights, &m, &v};
  return write_file_atomically(path, file_bytes(n_params), [&](const Sink& sink) {
    const std::int32_t header[2] = {step, n_params};
    sink(header, sizeof header);
    for (int s = 0; s < 3; ++s) {
      std::size_t done = 0;
      (*sections[s])([&](const void* data, std::size_t bytes) {
        const auto* values = static_cast<const float*>(data);
        const std::size_t n = bytes / sizeof(float);
        if (const std::size_t i = first_non_finite(values, n); i < n)
          throw CheckpointError("not written: " + path + ": " +
                                non_finite_message(kSectionNames[s], done + i, values[i]) +
                                "; nothing could resume from it");
        for (std::size_t i = 0; i < n; i += kBlockBytes / 4)
          sink(values + i, 4 * std::min(kBlockBytes / 4, n - i));
        done += n;
      });
      if (done != static_cast<std::size_t>(n_params))
        throw CheckpointError("not written: " + path + ": section " + kSectionNames[s] + " has " +
                              std::to_string(done) + " values, not " + std::to_string(n_params));
    }
  });
}

std::uint64_t write_checkpoint(const std::string& path, std::int32_t step, std::int32_t n_params,
                               const float* weights, const float* m, const float* v) {
  const auto section = [n_params](const float* values) -> Section {
    return [values, n_params](const Sink& sink) {
      sink(values, sizeof(float) * static_cast<std::size_t>(n_params));
    };
  };
  return write_checkpoint(path, step, n_params, section(weights), section(m), section(v));
}

CheckpointHeader read_checkpoint(const std::string& path, std::int32_t expected_n_params,
                                 std::vector<float>* weights, std::vector<float>* m, std::vector<float>* v,
                                 std::uint64_t* hash) {
  check_path(path);
  if (!file_exists(path)) throw IoError("no such checkpoint: " + path + "; check the path");
  PosixFile file = PosixFile::open(path, O_RDONLY | O_NONBLOCK);
  struct stat status{};
  if (::fstat(file.fd(), &status) != 0) throw_io_error("stat", path, errno);
  if (!S_ISREG(status.st_mode)) throw CheckpointError(path + " is no checkpoint: it is not a regular file");
  const auto size = static_cast<std::uint64_t>(status.st_size);
  std::int32_t words[2];
  if (size < kHeaderBytes || file.read(words, sizeof words) != sizeof words)
    throw CheckpointError(path + " is no checkpoint: it has " + std::to_string(size) +
                          " bytes, the header alone needs 8");
  const CheckpointHeader header{words[0], words[1]};
  if (header.step < 0 || header.n_params < 1)
    throw CheckpointError(path + " is no checkpoint: its header says step " + std::to_string(header.step) +
                          " and " + std::to_string(header.n_params) + " parameters");
  if (size != file_bytes(header.n_params))
    throw CheckpointError(path + " has " + std::to_string(size) + " bytes, but its header says " +
                          std::to_string(header.n_params) + " parameters, which makes " +
                          std::to_string(file_bytes(header.n_params)) +
                          "; the file is cut short or damaged: use an older checkpoint");
  if (expected_n_params >= 0 && header.n_params != expected_n_params)
    throw CheckpointError(path + " holds " + std::to_string(header.n_params) +
                          " parameters, but the model has " + std::to_string(expected_n_params) +
                          "; use the experiment file this checkpoint was trained with");

  const auto n = static_cast<std::size_t>(header.n_params);
  std::vector<float>* const sections[3] = {weights, m, v};
  std::vector<float> block;
  Xxh64 digest;
  digest.update(words, sizeof words);
  for (int s = 0; s < 3; ++s) {
    if (sections[s] != nullptr) sections[s]->resize(n);
    for (std::size_t i = 0; i < n; i += kBlockBytes / 4) {
      const std::size_t count = std::min(kBlockBytes / 4, n - i);
      float* out;
      if (sections[s] != nullptr) {
        out = sections[s]->data() + i;
      } else {
        block.resize(count);
        out = block.data();
      }
      if (file.read(out, 4 * count) != 4 * count)
        throw CheckpointError(path + " became shorter while it was read; use an older checkpoint");
      digest.update(out, 4 * count);
      if (const std::size_t bad = first_non_finite(out, count); bad < count)
        throw CheckpointError(path + ": " + non_finite_message(kSectionNames[s], i + bad, out[bad]) +
                              "; use an older checkpoint");
    }
  }
  if (hash != nullptr) *hash = digest.digest();
  return header;
}

}  // namespace andrea
