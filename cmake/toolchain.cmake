# Compiler settings every target shares.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(DHS_CCACHE ccache)
if(DHS_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${DHS_CCACHE})
endif()
# mold 1.10 lays some small programs out so that the loader refuses them under ThreadSanitizer.
find_program(DHS_MOLD mold)
if(DHS_MOLD AND NOT DHS_SANITIZE)
  add_link_options(-fuse-ld=mold)
endif()

add_library(dhs_flags INTERFACE)
# Options structs are filled by name; a member that is not named takes its default on purpose.
target_compile_options(dhs_flags INTERFACE -Wall -Wextra -Werror -Wno-missing-field-initializers)
target_include_directories(dhs_flags INTERFACE ${PROJECT_SOURCE_DIR}/include
                                               ${PROJECT_SOURCE_DIR})
# Kernels promise bits: no contraction the source does not ask for, on any instruction set.
target_compile_options(dhs_flags INTERFACE -ffp-contract=off)
if(DHS_SANITIZE)
  add_compile_options(-fsanitize=${DHS_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${DHS_SANITIZE})
  # g++ 12 sees uninitialised optionals through the instrumentation; the plain build has this check.
  target_compile_options(dhs_flags INTERFACE -Wno-maybe-uninitialized)
  if(DHS_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()
