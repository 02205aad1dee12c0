# OpenBLAS for the CPU back end: the scipy-openblas32 wheel, else a system OpenBLAS. It is loaded at run time,
# privately (cpp/kernels/cpu/openblas.cpp), so nothing is linked and no header is needed.
# Gives ANDREA_OPENBLAS_LIBRARY (the file) and ANDREA_OPENBLAS_IS_WHEEL.
include(AndreaPythonEnvironment)
andrea_python_package_dir(scipy_openblas32 _openblas_dir)
set(_openblas_wheel "${_openblas_dir}/lib/libscipy_openblas${CMAKE_SHARED_LIBRARY_SUFFIX}")
if(_openblas_dir AND EXISTS "${_openblas_wheel}")
  # A wheel in a build environment moves with it: ask anew each time.
  set(ANDREA_OPENBLAS_LIBRARY "${_openblas_wheel}" CACHE FILEPATH "OpenBLAS for the CPU back end" FORCE)
  set(ANDREA_OPENBLAS_IS_WHEEL TRUE)
else()
  if(ANDREA_OPENBLAS_LIBRARY AND NOT EXISTS "${ANDREA_OPENBLAS_LIBRARY}")
    unset(ANDREA_OPENBLAS_LIBRARY CACHE)
  endif()
  find_library(ANDREA_OPENBLAS_LIBRARY NAMES openblas libopenblas.so.0 DOC "OpenBLAS for the CPU back end")
  set(ANDREA_OPENBLAS_IS_WHEEL FALSE)
endif()
if(ANDREA_OPENBLAS_LIBRARY)
  set(AndreaOpenBLAS_FOUND TRUE)
elseif(AndreaOpenBLAS_FIND_REQUIRED)
  message(FATAL_ERROR "OpenBLAS not found. Either: pip install scipy-openblas32   or: apt install libopenblas0")
endif()
