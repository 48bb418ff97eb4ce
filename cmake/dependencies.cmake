# Every third-party package, found once. All of them come from Debian (cmake/setup.sh).
find_package(Threads REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
# Debian's dnnl-config.cmake asks for OpenCL headers that a CPU build does not need.
find_library(DHS_DNNL_LIBRARY dnnl REQUIRED)
find_path(DHS_DNNL_INCLUDE dnnl.hpp REQUIRED)
add_library(DNNL::dnnl SHARED IMPORTED)
set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${DHS_DNNL_LIBRARY}
                      INTERFACE_INCLUDE_DIRECTORIES ${DHS_DNNL_INCLUDE})
find_package(spdlog CONFIG REQUIRED)
find_package(yaml-cpp CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(GTest CONFIG REQUIRED)
find_package(benchmark CONFIG REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
if(DHS_SERVER)
  find_package(Protobuf REQUIRED)
  find_package(gRPC CONFIG REQUIRED)
  # Debian's configurations of these two ask for what pushing and embedding need.
  find_library(DHS_PROMETHEUS_LIBRARY prometheus-cpp-core REQUIRED)
  find_path(DHS_PROMETHEUS_INCLUDE prometheus/text_serializer.h REQUIRED)
  add_library(prometheus::core SHARED IMPORTED)
  set_target_properties(prometheus::core PROPERTIES IMPORTED_LOCATION ${DHS_PROMETHEUS_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES ${DHS_PROMETHEUS_INCLUDE})
  find_library(DHS_CIVETWEB_LIBRARY civetweb REQUIRED)
  find_path(DHS_CIVETWEB_INCLUDE civetweb.h REQUIRED)
  add_library(civetweb::civetweb SHARED IMPORTED)
  set_target_properties(civetweb::civetweb PROPERTIES IMPORTED_LOCATION ${DHS_CIVETWEB_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES ${DHS_CIVETWEB_INCLUDE})
endif()
