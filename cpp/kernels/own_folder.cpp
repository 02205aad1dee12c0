#include "kernels/own_folder.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <climits>

namespace andrea {

std::string own_folder() {
  Dl_info found{};
  void* extra = nullptr;
  if (dladdr1(reinterpret_cast<const void*>(&own_folder), &found, &extra, RTLD_DL_LINKMAP) == 0) return "";
  std::string path = found.dli_fname == nullptr ? "" : found.dli_fname;
  // For a program the loader knows only what it was called as, which may be any text; its map has no name.
  const auto* map = static_cast<const link_map*>(extra);
  if (map == nullptr || map->l_name == nullptr || map->l_name[0] == '\0') {
    char program[PATH_MAX];
    const ssize_t n = ::readlink("/proc/self/exe", program, sizeof program);
    if (n <= 0) return "";
    path.assign(program, static_cast<std::size_t>(n));
  }
  return path.substr(0, path.rfind('/') + 1);
}

}  // namespace andrea
