// Files as the engine writes and reads them: every call checked, EINTR and short transfers handled, and the
// message says which file, what was tried and what to do.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace andrea {

/// An open file descriptor, closed at the end of its life.
class PosixFile {
 public:
  PosixFile() = default;
  PosixFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  ~PosixFile();
  PosixFile(PosixFile&& other) noexcept;
  PosixFile& operator=(PosixFile&& other) noexcept;
  PosixFile(const PosixFile&) = delete;
  PosixFile& operator=(const PosixFile&) = delete;

  /// open(2) with O_CLOEXEC; IoError if it fails.
  static PosixFile open(const std::string& path, int flags, mode_t mode = 0644);

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  std::int64_t size() const;

  /// Writes all bytes at the current position.
  void write(const void* data, std::size_t bytes);
  /// Writes all bytes at `offset`; usually one pwrite.
  void write_at(const void* data, std::size_t bytes, std::int64_t offset);
  /// Reads up to `bytes` at the current position; fewer only at the end of the file.
  std::size_t read(void* data, std::size_t bytes);
  std::size_t read_at(void* data, std::size_t bytes, std::int64_t offset) const;
  void truncate(std::int64_t bytes);
  void sync();
  /// close(2), checked: some file systems report a failed write only here.
  void close();

 private:
  int fd_ = -1;
  std::string path_;
};

/// Throws IoError "<what> <path>: <reason of errno_value>; <advice for that reason>".
[[noreturn]] void throw_io_error(const std::string& what, const std::string& path, int errno_value);

/// IoError if the path holds a NUL byte.
void check_path(const std::string& path);
/// IoError if a device, a pipe or a socket is at `path`: a rename would put a file in its place.
void refuse_to_replace_special(const std::string& path);

/// The directory part of a path; "." if it has none.
std::string directory_of(const std::string& path);
/// The last part of a path.
std::string base_name(const std::string& path);
bool file_exists(const std::string& path);
/// fsync of a directory, so that a rename or an unlink in it survives a power loss.
void sync_directory(const std::string& directory);
/// unlink(2); true if the file was there. IoError for other failures.
bool remove_file(const std::string& path);

}  // namespace andrea
