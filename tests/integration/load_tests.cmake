# castor-load's command against a real server.
castor_test(load_cli_test SINGLE_THREADED
            SOURCES client/cli_fixture.cc client/load_cli_test.cc client/program.cc process/server_process.cc
            LIBS castor_client nlohmann_json::nlohmann_json LABELS integration)
target_compile_definitions(load_cli_test PRIVATE
  CASTOR_PROGRAM="$<TARGET_FILE:castor-load>"
  CASTOR_SERVER_PROGRAM="$<TARGET_FILE:castor-server>"
  CASTOR_TEST_MODEL="${CASTOR_DEPS}/minilm")
add_dependencies(load_cli_test castor-load castor-server)

# Its sending, against a server whose answers leave at known times.
castor_test(load_send_test SINGLE_THREADED
            SOURCES client/load_send_test.cc
            LIBS castor_load_send castor_scripted_server LABELS integration)
