# castor-load's command against a real server.
castor_test(load_cli_test SINGLE_THREADED
            SOURCES cli_fixture.cc load_cli_test.cc server_process.cc
            LIBS castor_client nlohmann_json::nlohmann_json LABELS integration)
target_compile_definitions(load_cli_test PRIVATE
  CASTOR_PROGRAM="$<TARGET_FILE:castor-load>"
  CASTOR_SERVER_PROGRAM="$<TARGET_FILE:castor-server>"
  CASTOR_TEST_MODEL="${CASTOR_DEPS}/minilm")
add_dependencies(load_cli_test castor-load castor-server)

# castor-load's processes among themselves.

add_library(castor_load_fake_job STATIC load_fake_job.cc)
target_link_libraries(castor_load_fake_job PUBLIC castor_load_workers)
add_executable(load_fake_worker load_fake_worker.cc)
target_link_libraries(load_fake_worker PRIVATE castor_load_fake_job)

castor_test(load_workers_test
  SOURCES load_workers_test.cc
  LIBS castor_load_fake_job LABELS integration)
target_compile_definitions(load_workers_test PRIVATE
  CASTOR_FAKE_WORKER="$<TARGET_FILE:load_fake_worker>")
add_dependencies(load_workers_test load_fake_worker)

castor_test(load_tls_test SINGLE_THREADED
            SOURCES load_tls_test.cc program.cc
            LIBS castor_load_commands castor_secure_server LABELS integration)
target_compile_definitions(load_tls_test PRIVATE CASTOR_PROGRAM="$<TARGET_FILE:castor-load>")
add_dependencies(load_tls_test castor-load)
