# Compiler settings that every room shares, as one interface target.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(andrea_settings INTERFACE)
target_include_directories(andrea_settings INTERFACE "${PROJECT_SOURCE_DIR}/cpp")
target_compile_definitions(andrea_settings INTERFACE ANDREA_VERSION="${PROJECT_VERSION}")
target_compile_options(andrea_settings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion>
  # One multiply, one rounding unless the code says fma: the same source gives the same bits.
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${ANDREA_WERROR}>>:-Werror>)
if(ANDREA_SANITIZE)
  target_compile_options(andrea_settings INTERFACE
    -fsanitize=${ANDREA_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(andrea_settings INTERFACE -fsanitize=${ANDREA_SANITIZE})
endif()
