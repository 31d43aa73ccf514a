# Whole servers over real sockets, with a scripted engine and with the real one.

add_library(castor_server_fixture STATIC server_fixture.cc)
find_package(GTest REQUIRED)
target_link_libraries(castor_server_fixture PUBLIC castor_fake_engine castor_server GTest::gtest)

foreach(name authorize call choice hostile kernels lifecycle metrics shared_memory transport)
  castor_test(server_${name}_test SOURCES server_${name}_test.cc LIBS castor_server_fixture
              LABELS integration)
endforeach()
target_sources(server_shared_memory_test PRIVATE server_shared_memory_faults_test.cc)
target_link_libraries(server_choice_test PRIVATE castor_client)
target_link_libraries(server_kernels_test PRIVATE castor_twins)
foreach(name metrics shared_memory)
  target_compile_definitions(server_${name}_test PRIVATE
    CASTOR_TINY_MODEL="${CMAKE_SOURCE_DIR}/tests/golden/encoder/tiny_bert")
endforeach()

foreach(name process start)
  castor_test(server_${name}_test SOURCES server_process.cc server_${name}_test.cc
              LIBS castor_server_fixture LABELS integration)
  target_compile_definitions(server_${name}_test PRIVATE
    CASTOR_SERVER_PROGRAM="$<TARGET_FILE:castor-server>"
    CASTOR_TEST_FOLDER="${CMAKE_CURRENT_SOURCE_DIR}")
  add_dependencies(server_${name}_test castor-server)
endforeach()
