#include "engine/files/temporary_file.h"

#include <dirent.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <memory>
#include <string_view>

#include "engine/files/posix_file.h"

namespace andrea {
namespace {

constexpr std::string_view kSuffix = ".tmp";

/// The PID in `<prefix>PID.tmp`; 0 for any other name.
pid_t owner_of(std::string_view entry, std::string_view prefix) {
  if (entry.size() <= prefix.size() + kSuffix.size() || entry.substr(0, prefix.size()) != prefix ||
      entry.substr(entry.size() - kSuffix.size()) != kSuffix)
    return 0;
  const char* const end = entry.data() + entry.size() - kSuffix.size();
  pid_t pid = 0;
  const auto [rest, fault] = std::from_chars(entry.data() + prefix.size(), end, pid);
  return fault == std::errc{} && rest == end && pid > 0 ? pid : 0;
}

}  // namespace

std::string temporary_beside(const std::string& path) {
  const std::string directory = directory_of(path);
  const std::string prefix = "." + base_name(path) + ".";
  if (const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(directory.c_str()), ::closedir); open) {
    while (const dirent* const entry = ::readdir(open.get())) {
      const pid_t pid = owner_of(entry->d_name, prefix);
      if (pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH)
        ::unlink((directory + "/" + entry->d_name).c_str());
    }
  }
  return directory + "/" + prefix + std::to_string(::getpid()) + std::string(kSuffix);
}

}  // namespace andrea
