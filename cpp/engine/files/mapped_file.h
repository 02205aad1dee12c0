// A file mapped for reading, and what can happen to it meanwhile: others may cut it or write into it.
#pragma once

#include <sys/stat.h>

#include <cstddef>

#include "engine/files/posix_file.h"

namespace andrea {

/// Maps a whole regular file read-only and keeps it open.
class MappedFile {
 public:
  /// IoError if it cannot be mapped. The file must not be empty.
  explicit MappedFile(PosixFile file);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const unsigned char* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

  /// True if somebody wrote to the file since it was mapped or accepted. IoError if it has another length
  /// than then: what is behind its new end would be zeros, or end the process (SIGBUS).
  bool written_to() const;
  /// Takes the file as it is now.
  void accept();

 private:
  PosixFile file_;
  const unsigned char* data_ = nullptr;
  std::size_t bytes_ = 0;
  struct timespec modified_{};
};

/// The path of the mapped file at this address; nullptr: no mapped file is there, or more are mapped than are
/// listed. May be called in a signal handler.
const char* mapped_path_at(const void* address);

}  // namespace andrea
