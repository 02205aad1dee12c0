// Makes writes beyond a file size fail as on a full disk: short first, then with an error.
#pragma once

#include <sys/resource.h>

#include <csignal>
#include <cstdint>

namespace andrea::testing {

class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::uint64_t bytes) : previous_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &previous_);
    rlimit limit = previous_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &previous_);
    std::signal(SIGXFSZ, previous_handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit previous_{};
  void (*previous_handler_)(int);
};

}  // namespace andrea::testing
