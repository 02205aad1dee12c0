#include "kernels/cpu/openblas.h"

#include <dlfcn.h>

#include <cstdlib>
#include <sstream>
#include <vector>

#include "engine/errors.h"
#include "kernels/own_folder.h"

namespace andrea {
namespace {

// The wheel prefixes its symbols, a system library does not.
void* symbol(void* library, const std::string& name) {
  void* found = dlsym(library, ("scipy_" + name).c_str());
  return found != nullptr ? found : dlsym(library, name.c_str());
}

template <class Function>
Function function(void* library, const std::string& name) {
  return reinterpret_cast<Function>(symbol(library, name));
}

// "OpenBLAS 0.3.30 DYNAMIC_ARCH ..." -> "OpenBLAS 0.3.30"
std::string first_two_words(const std::string& text) {
  std::istringstream words(text);
  std::string name, version;
  words >> name >> version;
  return name + " " + version;
}

OpenBlas load() {
  std::vector<std::string> candidates;
  if (const char* chosen = std::getenv("ANDREA_OPENBLAS"); chosen != nullptr && *chosen != '\0') {
    candidates.emplace_back(chosen);
  } else {
    candidates = {own_folder() + ANDREA_PRIVATE_OPENBLAS_NAME, ANDREA_OPENBLAS_LIBRARY, "libopenblas.so.0"};
  }
  std::string reasons;
  for (const std::string& path : candidates) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      reasons += std::string("\n  ") + dlerror();
      continue;
    }
    const auto sgemm = function<SgemmFunction>(library, "cblas_sgemm");
    const auto set_threads = function<void (*)(int)>(library, "openblas_set_num_threads");
    const auto config = function<char* (*)()>(library, "openblas_get_config");
    const auto core = function<char* (*)()>(library, "openblas_get_corename");
    if (sgemm == nullptr || set_threads == nullptr || config == nullptr || core == nullptr) {
      reasons += "\n  " + path + ": not an OpenBLAS with the CBLAS interface";
      dlclose(library);
      continue;
    }
    set_threads(1);
    return {sgemm, path, first_two_words(config()) + " " + core()};
  }
  throw DeviceError("device cpu: OpenBLAS cannot be loaded:" + reasons +
                    "\nInstall it (pip install scipy-openblas32, or apt install libopenblas0), or set "
                    "ANDREA_OPENBLAS to its file.");
}

}  // namespace

const OpenBlas& openblas() {
  static const OpenBlas loaded = load();
  return loaded;
}

}  // namespace andrea
