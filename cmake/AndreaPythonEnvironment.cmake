# Where a Python package of the build environment lies; empty if there is no Python or no such package.
# Build requirements such as OpenBLAS and nlohmann-json come as wheels, so CMake has to ask Python.
function(andrea_python_package_dir package result)
  set(${result} "" PARENT_SCOPE)
  # An active virtual environment first, then the PATH.
  if(DEFINED ENV{VIRTUAL_ENV})
    set(hint HINTS "$ENV{VIRTUAL_ENV}/bin")
  endif()
  find_program(ANDREA_PYTHON_PROGRAM NAMES python3 python ${hint} DOC "Python whose packages the build may use")
  if(NOT ANDREA_PYTHON_PROGRAM AND NOT Python_EXECUTABLE)
    return()
  endif()
  set(python "${ANDREA_PYTHON_PROGRAM}")
  if(Python_EXECUTABLE)
    set(python "${Python_EXECUTABLE}")
  endif()
  execute_process(
    COMMAND "${python}" -c
      "import importlib.util as u; s = u.find_spec('${package}'); print(next(iter(s.submodule_search_locations or []), '') if s else '')"
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(${result} "${found}" PARENT_SCOPE)
endfunction()
