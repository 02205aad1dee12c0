#include "engine/files/mapped_file.h"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>

#include "engine/errors.h"

namespace andrea {
namespace {

// What is mapped, for a signal handler: no lock and no allocation when it is read.
struct Slot {
  std::atomic<std::uintptr_t> begin{0};  // 0: free
  std::atomic<std::size_t> bytes{0};
  std::array<char, 512> path{};
};
std::array<Slot, 256> slots;
std::mutex slots_mutex;

void list(const unsigned char* data, std::size_t bytes, const std::string& path) {
  const std::lock_guard<std::mutex> lock(slots_mutex);
  for (Slot& slot : slots) {
    if (slot.begin.load() != 0) continue;
    const std::size_t skipped = path.size() < slot.path.size() ? 0 : path.size() - slot.path.size() + 1;
    std::memcpy(slot.path.data(), path.c_str() + skipped, path.size() - skipped + 1);
    slot.bytes.store(bytes);
    slot.begin.store(reinterpret_cast<std::uintptr_t>(data));
    return;
  }
}

void unlist(const unsigned char* data) {
  const std::lock_guard<std::mutex> lock(slots_mutex);
  for (Slot& slot : slots)
    if (slot.begin.load() == reinterpret_cast<std::uintptr_t>(data)) slot.begin.store(0);
}

struct stat status_of(const PosixFile& file) {
  struct stat status{};
  if (::fstat(file.fd(), &status) != 0) throw_io_error("stat", file.path(), errno);
  return status;
}

}  // namespace

MappedFile::MappedFile(PosixFile file) : file_(std::move(file)) {
  const struct stat status = status_of(file_);
  const auto bytes = static_cast<std::size_t>(status.st_size);
  void* map = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file_.fd(), 0);
  if (map == MAP_FAILED) throw_io_error("map", file_.path(), errno);
  data_ = static_cast<const unsigned char*>(map);
  bytes_ = bytes;
  modified_ = status.st_mtim;
  list(data_, bytes_, file_.path());
}

MappedFile::~MappedFile() {
  unlist(data_);
  ::munmap(const_cast<unsigned char*>(data_), bytes_);
}

bool MappedFile::written_to() const {
  const struct stat status = status_of(file_);
  if (static_cast<std::size_t>(status.st_size) != bytes_)
    throw IoError(file_.path() + " had " + std::to_string(bytes_) + " bytes when it was opened and has " +
                  std::to_string(status.st_size) +
                  " now: somebody cut it or wrote to it while it was in use; bring the old file back, and "
                  "put new data in place by a rename");
  return status.st_mtim.tv_sec != modified_.tv_sec || status.st_mtim.tv_nsec != modified_.tv_nsec;
}

void MappedFile::accept() { modified_ = status_of(file_).st_mtim; }

const char* mapped_path_at(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (const Slot& slot : slots) {
    const std::uintptr_t begin = slot.begin.load();
    if (begin != 0 && at >= begin && at - begin < slot.bytes.load()) return slot.path.data();
  }
  return nullptr;
}

}  // namespace andrea
