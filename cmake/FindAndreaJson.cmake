# nlohmann-json: the Python package of the same name ships the headers; else a system package.
# Gives the target nlohmann_json::nlohmann_json.
find_package(nlohmann_json 3.9 QUIET CONFIG)
if(NOT TARGET nlohmann_json::nlohmann_json)
  include(AndreaPythonEnvironment)
  andrea_python_package_dir(nlohmann_json _dir)
  find_path(ANDREA_JSON_INCLUDE_DIR nlohmann/json.hpp HINTS "${_dir}/include")
  if(ANDREA_JSON_INCLUDE_DIR)
    add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED)
    set_target_properties(nlohmann_json::nlohmann_json PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES "${ANDREA_JSON_INCLUDE_DIR}")
  endif()
endif()
if(TARGET nlohmann_json::nlohmann_json)
  set(AndreaJson_FOUND TRUE)
elseif(AndreaJson_FIND_REQUIRED)
  message(FATAL_ERROR "nlohmann-json not found. Either: pip install nlohmann-json   or: apt install nlohmann-json3-dev")
endif()
