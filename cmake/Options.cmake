# SPDX-License-Identifier: Apache-2.0
# Compile options that every target shares, carried by the interface target octavo_options.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

add_library(octavo_options INTERFACE)
target_compile_features(octavo_options INTERFACE cxx_std_20)
# No contraction: a * b + c stays two roundings unless the source says fma. The emulation's promise
# (the same bits on every machine) rests on it.
target_compile_options(octavo_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wno-sign-conversion;-ffp-contract=off>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 warns of overlaps in std::string's operator+ that cannot happen (GCC bug 105329).
  target_compile_options(octavo_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
if(OCTAVO_WERROR)
  target_compile_options(octavo_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(OCTAVO_SANITIZE)
  target_compile_options(octavo_options INTERFACE -fsanitize=${OCTAVO_SANITIZE}
    -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(octavo_options INTERFACE -fsanitize=${OCTAVO_SANITIZE})
endif()
