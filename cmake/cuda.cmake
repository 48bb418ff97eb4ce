# CUDA kernels: one source, two compilers. nvcc builds them for GPUs (DHS_CUDA), g++ builds them for
# the emulator in tests/simt (DHS_SIMT). Both need the CUDA 13 toolkit; the second only its headers.
#
#   DHS_CUDA   AUTO (default: when nvcc is found) | ON | OFF
#   DHS_SIMT   AUTO (default: when headers and boost-context are found) | ON | OFF
set(DHS_CUDA AUTO CACHE STRING "Build the CUDA backend: AUTO, ON or OFF")
set(DHS_SIMT AUTO CACHE STRING "Test CUDA kernels under emulation: AUTO, ON or OFF")
set(DHS_CUDA_ARCHITECTURES "80-real;90a-real;100a-real" CACHE STRING "What nvcc compiles for")

# Sanitizer builds of the whole tree have no use for either: the emulator brings its own.
if(DHS_SANITIZE)
  set(dhs_auto OFF)
else()
  set(dhs_auto ON)
endif()

find_package(CUDAToolkit 13 QUIET)
find_library(DHS_BOOST_CONTEXT boost_context)
foreach(option DHS_CUDA DHS_SIMT)
  if(${option} STREQUAL "AUTO")
    set(${option}_WANTED ${dhs_auto})
  else()
    set(${option}_WANTED ${${option}})
  endif()
  if(${option}_WANTED AND NOT CUDAToolkit_FOUND)
    if(NOT ${option} STREQUAL "AUTO")
      message(FATAL_ERROR "${option}=ON needs the CUDA 13 toolkit: set CUDAToolkit_ROOT to it")
    endif()
    message(STATUS "${option}: off, no CUDA 13 toolkit found")
    set(${option}_WANTED OFF)
  endif()
endforeach()
if(DHS_SIMT_WANTED AND NOT DHS_BOOST_CONTEXT)
  message(FATAL_ERROR "DHS_SIMT needs libboost-context-dev; run cmake/setup.sh")
endif()

if(DHS_CUDA_WANTED)
  set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
  # Before enable_language, or nvcc's default wins.
  set(CMAKE_CUDA_ARCHITECTURES ${DHS_CUDA_ARCHITECTURES})
  # CMake 3.25 does not know nvcc's C++20: the option is passed by hand below.
  set(CMAKE_CUDA_STANDARD_REQUIRED OFF)
  if(DHS_CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${DHS_CCACHE})
  endif()
  enable_language(CUDA)
endif()

# The emulator's builds and what they compile kernels with. `checked` instruments kernels only.
set(DHS_SIMT_VARIANTS plain checked asan)
set(DHS_SIMT_KERNEL_OPTIONS_plain -O2)
set(DHS_SIMT_KERNEL_OPTIONS_checked -O1 -fsanitize=thread -Wno-tsan)
set(DHS_SIMT_KERNEL_OPTIONS_asan -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined
                                 -fno-omit-frame-pointer)
set(DHS_SIMT_LINK_OPTIONS_asan -fsanitize=address,undefined)

# Includes and options of anything that is compiled against the emulator.
add_library(dhs_simt_flags INTERFACE)
target_include_directories(dhs_simt_flags INTERFACE ${PROJECT_SOURCE_DIR}
                                                    ${PROJECT_SOURCE_DIR}/include
                                                    ${PROJECT_SOURCE_DIR}/tests)
if(CUDAToolkit_FOUND)
  target_include_directories(dhs_simt_flags SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
endif()
target_compile_options(dhs_simt_flags INTERFACE -Wall -Wextra -Werror -g1
                       -Wno-missing-field-initializers -Wno-maybe-uninitialized
                       -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)

# An object library of CUDA sources.
function(dhs_cuda_objects name)
  add_library(${name} OBJECT ${ARGN})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  # 554: TensorView<const T> has a conversion to itself that nothing calls.
  target_compile_options(${name} PRIVATE -std=c++20 --expt-relaxed-constexpr -lineinfo
                         -Xcompiler=-Wall -Werror=all-warnings -diag-suppress=554)
endfunction()

# dhs_cuda_kernel(OP SOURCES x.cu ... [SM90A_SOURCES y.cu ...])
#   The op's CUDA version: object libraries dhs_cuda_<OP> (nvcc) and simt_<variant>_<OP> (emulated).
#   Objects, because launchers refer to them weakly and an archive would be skipped. SM90A_SOURCES
#   are compiled for sm_90a alone, whatever DHS_CUDA_ARCHITECTURES says; whoever links dhs_cuda_<OP>
#   links them.
function(dhs_cuda_kernel op)
  cmake_parse_arguments(ARG "" "" "SOURCES;SM90A_SOURCES" ${ARGN})
  set_property(GLOBAL APPEND PROPERTY DHS_CUDA_OPS ${op})
  if(DHS_CUDA_WANTED)
    dhs_cuda_objects(dhs_cuda_${op} ${ARG_SOURCES})
    if(ARG_SM90A_SOURCES)
      dhs_cuda_objects(dhs_cuda_${op}_sm90a ${ARG_SM90A_SOURCES})
      set_target_properties(dhs_cuda_${op}_sm90a PROPERTIES CUDA_ARCHITECTURES 90a-real)
      target_sources(dhs_cuda_${op} INTERFACE $<TARGET_OBJECTS:dhs_cuda_${op}_sm90a>)
    endif()
  endif()
  if(NOT DHS_SIMT_WANTED)
    return()
  endif()
  foreach(source ${ARG_SOURCES} ${ARG_SM90A_SOURCES})
    set(wrapper ${CMAKE_CURRENT_BINARY_DIR}/${source}.cc)
    file(CONFIGURE OUTPUT ${wrapper}
         CONTENT "#include \"${CMAKE_CURRENT_SOURCE_DIR}/${source}\"\n")
    list(APPEND wrappers ${wrapper})
  endforeach()
  foreach(variant ${DHS_SIMT_VARIANTS})
    add_library(simt_${variant}_${op} OBJECT ${wrappers})
    target_link_libraries(simt_${variant}_${op} PRIVATE dhs_simt_flags)
    target_compile_options(simt_${variant}_${op} PRIVATE ${DHS_SIMT_KERNEL_OPTIONS_${variant}})
  endforeach()
endfunction()

# dhs_simt_test(NAME SOURCES ... [OPS ...] [DEPS ...] [VARIANTS ...] [TIMEOUT seconds])
#   The test once per emulator build, as simt_<variant>_<NAME>, with DHS_TEST_CUDA=1: the CUDA
#   versions of OPS run under emulation. DEPS are CPU libraries it needs beside them.
function(dhs_simt_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;OPS;DEPS;VARIANTS" ${ARGN})
  if(NOT DHS_SIMT_WANTED)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  if(NOT ARG_VARIANTS)
    set(ARG_VARIANTS ${DHS_SIMT_VARIANTS})
  endif()
  foreach(variant ${ARG_VARIANTS})
    set(program simt_${variant}_${name})
    # Only kernels differ between plain and checked: their tests are compiled once.
    set(objects simt_${name}_objects)
    if(variant STREQUAL "asan" OR ARG_VARIANTS STREQUAL variant)
      set(objects simt_${variant}_${name}_objects)
    endif()
    if(NOT TARGET ${objects})
      add_library(${objects} OBJECT ${ARG_SOURCES})
      target_link_libraries(${objects} PRIVATE dhs_simt_flags ${ARG_DEPS} GTest::gtest GTest::gmock)
      target_compile_definitions(${objects} PRIVATE DHS_TEST_CUDA=1 DHS_SIMT=1
                                 DHS_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
      target_include_directories(${objects} PRIVATE ${PROJECT_SOURCE_DIR}/src)
      if(variant STREQUAL "asan")
        target_compile_options(${objects} PRIVATE ${DHS_SIMT_KERNEL_OPTIONS_asan})
      endif()
    endif()
    add_executable(${program} $<TARGET_OBJECTS:${objects}>)
    foreach(op ${ARG_OPS})
      target_link_libraries(${program} PRIVATE simt_${variant}_${op})
    endforeach()
    target_link_libraries(${program} PRIVATE dhs_simt_flags dhs_simt_${variant} ${ARG_DEPS}
                                             GTest::gtest_main GTest::gmock)
    target_link_options(${program} PRIVATE ${DHS_SIMT_LINK_OPTIONS_${variant}})
    add_test(NAME ${program} COMMAND ${program})
    set_tests_properties(${program} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "simt;${variant}")
  endforeach()
endfunction()
