# dhs_module(NAME SOURCES ... [DEPS ...] [PRIVATE_DEPS ...])
#   A static library dhs_<NAME>, alias dhs::<NAME>. DEPS are visible to its users, PRIVATE_DEPS are
#   not.
function(dhs_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(dhs_${name} STATIC ${ARG_SOURCES})
  add_library(dhs::${name} ALIAS dhs_${name})
  target_link_libraries(dhs_${name} PUBLIC ${ARG_DEPS} PRIVATE dhs_flags ${ARG_PRIVATE_DEPS})
  target_include_directories(dhs_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include
                                                ${PROJECT_SOURCE_DIR}
                                        PRIVATE ${PROJECT_SOURCE_DIR}/src)
endfunction()

# dhs_test(NAME SOURCES ... DEPS ... [LABELS ...] [PARTS part ...])
#   One GoogleTest executable and one ctest entry called NAME. With PARTS, tests whose names end in
#   "/part" are in an entry NAME_part instead.
function(dhs_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS;LABELS;PARTS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE dhs_flags ${ARG_DEPS} GTest::gtest_main GTest::gmock)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src
                                             ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE DHS_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  set(entries ${name})
  foreach(part ${ARG_PARTS})
    add_test(NAME ${name}_${part} COMMAND ${name} --gtest_filter=*/${part})
    list(APPEND entries ${name}_${part})
  endforeach()
  if(ARG_PARTS)
    list(TRANSFORM ARG_PARTS PREPEND "*/" OUTPUT_VARIABLE patterns)
    list(JOIN patterns ":" patterns)
    set(all_others "--gtest_filter=-${patterns}")
  endif()
  add_test(NAME ${name} COMMAND ${name} ${all_others})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  set_tests_properties(${entries} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()
