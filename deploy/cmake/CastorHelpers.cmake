# Functions that the folders' CMakeLists use.

# castor_compute(TARGET ...): targets that calculate. Sanitizers' builds optimise these alone.
function(castor_compute)
  foreach(target IN LISTS ARGN)
    if(CASTOR_SANITIZE)
      target_compile_options(${target} PRIVATE -O1)
    endif()
  endforeach()
endfunction()

# Headers of GoogleTest and other libraries, compiled once for all tests of Clang's builds, where
# they take longer than most tests do. An executable as tests are, so that its flags are theirs.
# Tests include what they use all the same. GCC goes without: rarely, GCC 12 writes a header whose
# table of relocations is longer than it says, and compiling with it takes all of the machine's
# memory.
function(castor_precompile_test_headers)
  if(TARGET castor_test_headers)
    return()
  endif()
  add_executable(castor_test_headers EXCLUDE_FROM_ALL
                 "${CMAKE_SOURCE_DIR}/tests/support/precompiled.cc")
  target_link_libraries(castor_test_headers PRIVATE GTest::gmock GTest::gtest GTest::gtest_main
                        gRPC::grpc++ nlohmann_json::nlohmann_json
                        absl::status absl::statusor absl::any_invocable Threads::Threads)
  # -pthread, which some libraries ask for, must be in all or none. The other is what ccache needs
  # to keep objects that use a precompiled header.
  target_compile_options(castor_test_headers PUBLIC -pthread "SHELL:-Xclang -fno-pch-timestamp")
  target_precompile_headers(castor_test_headers PRIVATE
                            "${CMAKE_SOURCE_DIR}/tests/support/precompiled.h")
endfunction()

# castor_test(NAME [SINGLE_THREADED] [COMPUTES] SOURCES ... LIBS ... [LABELS ...] [TIMEOUT seconds]):
# a GoogleTest program that ctest runs as one test. Labels: unit (default), integration, slow.
# ThreadSanitizer's build leaves out what is SINGLE_THREADED. COMPUTES: see castor_compute().
function(castor_test name)
  cmake_parse_arguments(arg "SINGLE_THREADED;COMPUTES" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if(CASTOR_SANITIZE)
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 3")  # sanitizers slow a program that much or more
  endif()
  find_package(GTest REQUIRED)
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} GTest::gmock GTest::gtest GTest::gtest_main)
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}")
  # Tests are compiled more often than they run: their own code is hardly optimised.
  if(NOT CASTOR_SANITIZE)
    target_compile_options(${name} PRIVATE -O1)
  endif()
  if(arg_COMPUTES AND CASTOR_SANITIZE)
    castor_compute(${name})  # and without the others' header, which is not optimised
  elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    castor_precompile_test_headers()
    target_compile_options(${name} PRIVATE
                           $<TARGET_PROPERTY:castor_test_headers,INTERFACE_COMPILE_OPTIONS>)
    target_precompile_headers(${name} REUSE_FROM castor_test_headers)
  endif()
  if(arg_SINGLE_THREADED AND CASTOR_SANITIZE MATCHES "thread")
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
endfunction()

# castor_bench(NAME SOURCES ... LIBS ...): a Google Benchmark program; it is built, and run only by
# hand. Sanitizer builds leave it out, since its figures would mean nothing.
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
