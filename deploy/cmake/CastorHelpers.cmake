# The few functions that folders' CMakeLists use.

# castor_test(NAME SOURCES ... LIBS ... [LABELS ...] [TIMEOUT seconds]): a GoogleTest program that
# ctest runs as one test. Labels: unit (default), integration, slow.
function(castor_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if(CASTOR_SANITIZE)
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 3")  # they slow a program down as much and more
  endif()
  find_package(GTest REQUIRED)
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} GTest::gmock GTest::gtest GTest::gtest_main)
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
endfunction()

# castor_bench(NAME SOURCES ... LIBS ...): a Google Benchmark program; built, run only by hand. A
# sanitizer's build leaves it out: what it would measure means nothing.
function(castor_bench name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS" ${ARGN})
  find_package(benchmark REQUIRED)
  add_executable(${name} ${arg_SOURCES})
  if(CASTOR_SANITIZE)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
  target_link_libraries(${name} PRIVATE ${arg_LIBS} benchmark::benchmark)
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}")
endfunction()
