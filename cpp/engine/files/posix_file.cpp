#include "engine/files/posix_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/errors.h"

namespace andrea {
namespace {

// One read or write call moves less than 2 GiB on Linux; asking for less keeps the loop plain.
constexpr std::size_t kLargestTransfer = std::size_t{1} << 30;

const char* advice(int errno_value) {
  switch (errno_value) {
    case ENOSPC:
    case EDQUOT:
      return "; free space there, or choose another disk";
    case EACCES:
    case EPERM:
    case EROFS:
      return "; check the permissions, or choose another directory";
    case ENOENT:
      return "; check the path";
    case EISDIR:
      return "; a directory is in the way: choose another path";
    case ENOTDIR:
      return "; a part of the path is a file: choose another path";
    case EIO:
      return "; the disk reports a fault: look at the system log";
    case EMFILE:
    case ENFILE:
      return "; raise the limit of open files (ulimit -n)";
    default:
      return "";
  }
}

}  // namespace

void throw_io_error(const std::string& what, const std::string& path, int errno_value) {
  throw IoError("cannot " + what + " " + path + ": " + std::strerror(errno_value) + advice(errno_value));
}

PosixFile::~PosixFile() {
  if (fd_ >= 0) ::close(fd_);
}

PosixFile::PosixFile(PosixFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

PosixFile& PosixFile::operator=(PosixFile&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = std::exchange(other.fd_, -1);
    path_ = std::move(other.path_);
  }
  return *this;
}

void check_path(const std::string& path) {
  // The system would stop reading at the NUL and take another file.
  if (const std::size_t nul = path.find('\0'); nul != std::string::npos)
    throw IoError("a path holds a NUL byte after \"" + path.substr(0, nul) + "\"; check the path");
}

void refuse_to_replace_special(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
    throw IoError(path + " is a device, a pipe or a socket, which a new file would replace; " +
                  "choose another path");
}

PosixFile PosixFile::open(const std::string& path, int flags, mode_t mode) {
  check_path(path);
  int fd;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) throw_io_error("open", path, errno);
  return PosixFile(fd, path);
}

std::int64_t PosixFile::size() const {
  struct stat status{};
  if (::fstat(fd_, &status) != 0) throw_io_error("stat", path_, errno);
  return status.st_size;
}

void PosixFile::write(const void* data, std::size_t bytes) {
  const auto* p = static_cast<const unsigned char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(fd_, p, std::min(bytes, kLargestTransfer));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw_io_error("write", path_, n < 0 ? errno : EIO);
    p += n;
    bytes -= static_cast<std::size_t>(n);
  }
}

void PosixFile::write_at(const void* data, std::size_t bytes, std::int64_t offset) {
  const auto* p = static_cast<const unsigned char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::pwrite(fd_, p, std::min(bytes, kLargestTransfer), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw_io_error("write", path_, n < 0 ? errno : EIO);
    p += n;
    offset += n;
    bytes -= static_cast<std::size_t>(n);
  }
}

std::size_t PosixFile::read(void* data, std::size_t bytes) {
  auto* p = static_cast<unsigned char*>(data);
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t n = ::read(fd_, p + done, std::min(bytes - done, kLargestTransfer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_io_error("read", path_, errno);
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

std::size_t PosixFile::read_at(void* data, std::size_t bytes, std::int64_t offset) const {
  auto* p = static_cast<unsigned char*>(data);
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t n = ::pread(fd_, p + done, std::min(bytes - done, kLargestTransfer),
                              offset + static_cast<std::int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_io_error("read", path_, errno);
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

void PosixFile::truncate(std::int64_t bytes) {
  while (::ftruncate(fd_, bytes) != 0)
    if (errno != EINTR) throw_io_error("cut", path_, errno);
}

void PosixFile::sync() {
  while (::fsync(fd_) != 0)
    if (errno != EINTR) throw_io_error("sync", path_, errno);
}

void PosixFile::close() {
  const int fd = std::exchange(fd_, -1);
  // After EINTR the descriptor is gone on Linux; trying again could close someone else's.
  if (fd >= 0 && ::close(fd) != 0 && errno != EINTR) throw_io_error("close", path_, errno);
}

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string base_name(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

bool file_exists(const std::string& path) {
  struct stat status{};
  return ::lstat(path.c_str(), &status) == 0;
}

void sync_directory(const std::string& directory) {
  PosixFile file = PosixFile::open(directory, O_RDONLY | O_DIRECTORY);
  while (::fsync(file.fd()) != 0) {
    // Some file systems cannot sync a directory and say EINVAL; there is nothing more to be done there.
    if (errno == EINVAL) return;
    if (errno != EINTR) throw_io_error("sync directory", directory, errno);
  }
}

bool remove_file(const std::string& path) {
  if (::unlink(path.c_str()) == 0) return true;
  if (errno == ENOENT) return false;
  throw_io_error("remove", path, errno);
}

}  // namespace andrea
