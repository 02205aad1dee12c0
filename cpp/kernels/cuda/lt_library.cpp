#include "kernels/cuda/lt_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

#include "engine/errors.h"
#include "kernels/own_folder.h"

#define ANDREA_TEXT_OF(x) #x
#define ANDREA_TEXT(x) ANDREA_TEXT_OF(x)

namespace andrea::cuda {
namespace {

constexpr char kSoName[] = "libcublasLt.so." ANDREA_TEXT(CUBLAS_VER_MAJOR);

std::vector<std::string> places() {
  std::vector<std::string> list;
  if (const char* named = std::getenv("ANDREA_CUBLASLT")) list.emplace_back(named);
  list.emplace_back(kSoName);
  if (const std::string folder = own_folder(); !folder.empty()) {
    list.push_back(folder + "../nvidia/cu" ANDREA_TEXT(CUBLAS_VER_MAJOR) "/lib/" + kSoName);
    list.push_back(folder + "../nvidia/cublas/lib/" + kSoName);
  }
#ifdef ANDREA_CUBLASLT_FOLDER
  list.push_back(std::string(ANDREA_CUBLASLT_FOLDER) + "/" + kSoName);
#endif
  return list;
}

template <typename Function>
void bind(Function& function, void* handle, const char* name) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
  if (function == nullptr)
    throw DeviceError(std::string(kSoName) + " has no function " + name + ": install a newer nvidia-cublas");
}

LtLibrary open() {
  std::string tried;
  for (const std::string& path : places()) {
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      tried += (tried.empty() ? "" : ", ") + path;
      continue;
    }
    LtLibrary lt{};
    bind(lt.create, handle, "cublasLtCreate");
    bind(lt.destroy, handle, "cublasLtDestroy");
    bind(lt.get_version, handle, "cublasLtGetVersion");
    bind(lt.matmul, handle, "cublasLtMatmul");
    bind(lt.desc_create, handle, "cublasLtMatmulDescCreate");
    bind(lt.desc_destroy, handle, "cublasLtMatmulDescDestroy");
    bind(lt.desc_set, handle, "cublasLtMatmulDescSetAttribute");
    bind(lt.layout_create, handle, "cublasLtMatrixLayoutCreate");
    bind(lt.layout_destroy, handle, "cublasLtMatrixLayoutDestroy");
    bind(lt.preference_create, handle, "cublasLtMatmulPreferenceCreate");
    bind(lt.preference_destroy, handle, "cublasLtMatmulPreferenceDestroy");
    bind(lt.preference_set, handle, "cublasLtMatmulPreferenceSetAttribute");
    bind(lt.get_heuristic, handle, "cublasLtMatmulAlgoGetHeuristic");
    bind(lt.algo_init, handle, "cublasLtMatmulAlgoInit");
    bind(lt.algo_check, handle, "cublasLtMatmulAlgoCheck");
    bind(lt.algo_get, handle, "cublasLtMatmulAlgoConfigGetAttribute");
    bind(lt.algo_set, handle, "cublasLtMatmulAlgoConfigSetAttribute");
    lt.path = path;
    return lt;
  }
  throw DeviceError(std::string(kSoName) + " not found (tried " + tried + "): pip install nvidia-cublas" +
                    ", or install the CUDA toolkit's cuBLAS, or set "
                    "ANDREA_CUBLASLT to the file");
}

}  // namespace

const LtLibrary& lt_library() {
  static const LtLibrary library = open();
  return library;
}

}  // namespace andrea::cuda
