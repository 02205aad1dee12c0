# Decides whether the CUDA back end is built, and finds what it needs. Sets
#   ANDREA_CUDA_BUILD             ON or OFF
#   ANDREA_CUBLASLT_INCLUDE_DIR   folder with cublasLt.h (the library itself is opened at run time)
#   ANDREA_CUBLASLT_FOLDER        where its library lies on this machine, may be empty
# ANDREA_CUDA=AUTO builds it only where a CUDA compiler and a GPU (or CMAKE_CUDA_ARCHITECTURES) are found.
# The toolkit is the system's, else NVIDIA's wheels in the Python environment
# (nvidia-cuda-nvcc, nvidia-cuda-crt, nvidia-cuda-cccl, nvidia-cuda-runtime, nvidia-nvvm, nvidia-cublas).
# Included by the top CMakeLists.txt: a language has to be enabled above all targets that link to it.
include_guard(GLOBAL)
include(AndreaPythonEnvironment)
set(ANDREA_CUDA_BUILD OFF)

# The wheels' folder: site-packages/nvidia/cu13 holds bin, include, lib, nvvm.
function(andrea_cuda_wheels result)
  set(${result} "" PARENT_SCOPE)
  andrea_python_package_dir(nvidia nvidia)
  if(nvidia)
    file(GLOB found LIST_DIRECTORIES true "${nvidia}/cu[0-9]*")
    if(found)
      list(GET found -1 newest)
      set(${result} "${newest}" PARENT_SCOPE)
    endif()
  endif()
endfunction()

# The architectures of the GPUs here, as "90;86"; empty if there is none.
function(andrea_cuda_gpus result)
  set(${result} "" PARENT_SCOPE)
  find_program(ANDREA_NVIDIA_SMI nvidia-smi HINTS /usr/local/nvidia/bin /usr/lib/wsl/lib)
  if(ANDREA_NVIDIA_SMI)
    execute_process(COMMAND "${ANDREA_NVIDIA_SMI}" --query-gpu=compute_cap --format=csv,noheader
      RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(status EQUAL 0 AND text MATCHES "^[0-9]")
      string(REGEX MATCHALL "[0-9]+\\.[0-9]+" caps "${text}")
      string(REPLACE "." "" caps "${caps}")
      list(REMOVE_DUPLICATES caps)
      set(${result} "${caps}" PARENT_SCOPE)
    endif()
  endif()
endfunction()

if(NOT ANDREA_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "ANDREA_CUDA=${ANDREA_CUDA}: must be AUTO, ON or OFF")
endif()
if(ANDREA_CUDA STREQUAL "OFF")
  return()
endif()

andrea_cuda_gpus(_gpus)
if(ANDREA_CUDA STREQUAL "AUTO" AND NOT _gpus AND NOT CMAKE_CUDA_ARCHITECTURES)
  message(STATUS "CUDA back end: not built (no GPU here; ANDREA_CUDA=ON builds it anyway)")
  return()
endif()

andrea_cuda_wheels(_wheels)
if(NOT CMAKE_CUDA_COMPILER)
  file(GLOB _toolkits LIST_DIRECTORIES true /usr/local/cuda-[0-9]*)
  list(SORT _toolkits COMPARE NATURAL ORDER DESCENDING)
  find_program(ANDREA_NVCC nvcc
    HINTS "$ENV{CUDACXX}" "$ENV{CUDA_HOME}/bin" "$ENV{CUDA_PATH}/bin" /usr/local/cuda/bin
    PATHS ${_toolkits} "${_wheels}" PATH_SUFFIXES bin DOC "CUDA compiler")
  if(ANDREA_NVCC)
    set(CMAKE_CUDA_COMPILER "${ANDREA_NVCC}")
  endif()
endif()
if(NOT CMAKE_CUDA_COMPILER)
  if(ANDREA_CUDA STREQUAL "ON")
    message(FATAL_ERROR "ANDREA_CUDA=ON, but no CUDA compiler. Either install the CUDA toolkit, or: "
      "pip install nvidia-cuda-nvcc nvidia-cuda-crt nvidia-cuda-cccl nvidia-cuda-runtime nvidia-nvvm nvidia-cublas")
  endif()
  message(STATUS "CUDA back end: not built (a GPU is here, but no CUDA compiler)")
  return()
endif()

# cublasLt.h: of the toolkit, else of the wheels. From the wheels only cublas*.h are taken: their folder may
# hold headers of another CUDA version, which do not compile with this compiler.
get_filename_component(_toolkit "${CMAKE_CUDA_COMPILER}" DIRECTORY)
get_filename_component(_toolkit "${_toolkit}" DIRECTORY)
find_path(ANDREA_CUBLASLT_HEADER cublasLt.h
  HINTS "${_toolkit}/include" "${_toolkit}/targets/x86_64-linux/include" "${_toolkit}/targets/sbsa-linux/include")
if(NOT ANDREA_CUBLASLT_HEADER AND _wheels)
  find_path(ANDREA_CUBLASLT_HEADER cublasLt.h HINTS "${_wheels}/include" NO_DEFAULT_PATH)
endif()
if(NOT ANDREA_CUBLASLT_HEADER)
  if(ANDREA_CUDA STREQUAL "ON")
    message(FATAL_ERROR "ANDREA_CUDA=ON, but cublasLt.h was not found. Either install the toolkit's cuBLAS "
      "(libcublas-dev), or: pip install nvidia-cublas")
  endif()
  message(STATUS "CUDA back end: not built (cublasLt.h not found)")
  return()
endif()
set(ANDREA_CUBLASLT_INCLUDE_DIR "${CMAKE_BINARY_DIR}/cublas-headers")
file(GLOB _headers "${ANDREA_CUBLASLT_HEADER}/cublas*.h")
file(COPY ${_headers} DESTINATION "${ANDREA_CUBLASLT_INCLUDE_DIR}")
find_path(ANDREA_CUBLASLT_FOLDER NAMES libcublasLt.so.13 libcublasLt.so.12 libcublasLt.so
  HINTS "${_wheels}/lib" "${_toolkit}/lib64" "${_toolkit}/lib" DOC "Folder of cuBLASLt's library")
if(NOT ANDREA_CUBLASLT_FOLDER)
  set(ANDREA_CUBLASLT_FOLDER "")
endif()

if(NOT CMAKE_CUDA_ARCHITECTURES)
  if(_gpus)
    set(CMAKE_CUDA_ARCHITECTURES ${_gpus})
  else()
    set(CMAKE_CUDA_ARCHITECTURES 80 86 89 90)
  endif()
endif()
if(NOT CMAKE_CUDA_HOST_COMPILER AND NOT DEFINED ENV{CUDAHOSTCXX})
  set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}")
endif()
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(ANDREA_CUDA_BUILD ON)
message(STATUS "CUDA back end: ${CMAKE_CUDA_COMPILER} ${CMAKE_CUDA_COMPILER_VERSION}, "
  "architectures ${CMAKE_CUDA_ARCHITECTURES}, cuBLASLt headers of ${ANDREA_CUBLASLT_HEADER}")
