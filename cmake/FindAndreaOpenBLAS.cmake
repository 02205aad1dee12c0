# OpenBLAS for the CPU back end: the scipy-openblas32 wheel (symbols prefixed scipy_), else a system OpenBLAS.
# Gives the target andrea::openblas and the variables ANDREA_OPENBLAS_LIBRARY, ANDREA_OPENBLAS_PREFIX.
include(AndreaPythonEnvironment)
andrea_python_package_dir(scipy_openblas32 _dir)
if(_dir AND EXISTS "${_dir}/lib/libscipy_openblas.so")
  set(ANDREA_OPENBLAS_LIBRARY "${_dir}/lib/libscipy_openblas.so")
  set(ANDREA_OPENBLAS_INCLUDE_DIR "${_dir}/include")
  set(ANDREA_OPENBLAS_PREFIX "scipy_")
else()
  find_library(ANDREA_OPENBLAS_LIBRARY NAMES openblas)
  find_path(ANDREA_OPENBLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES openblas)
  set(ANDREA_OPENBLAS_PREFIX "")
endif()
if(ANDREA_OPENBLAS_LIBRARY AND ANDREA_OPENBLAS_INCLUDE_DIR)
  add_library(andrea::openblas UNKNOWN IMPORTED)
  set_target_properties(andrea::openblas PROPERTIES
    IMPORTED_LOCATION "${ANDREA_OPENBLAS_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${ANDREA_OPENBLAS_INCLUDE_DIR}"
    INTERFACE_COMPILE_DEFINITIONS "ANDREA_BLAS(name)=${ANDREA_OPENBLAS_PREFIX}##name")
  set(AndreaOpenBLAS_FOUND TRUE)
elseif(AndreaOpenBLAS_FIND_REQUIRED)
  message(FATAL_ERROR "OpenBLAS not found. Either: pip install scipy-openblas32   or: apt install libopenblas-dev")
endif()
