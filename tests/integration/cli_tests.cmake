# The castor command against a real server. Encoding needs the MiniLM model that setup.sh fetches;
# without it those tests are skipped with a message.

castor_test(cli_test SINGLE_THREADED
            SOURCES client/cli_careless_test.cc client/cli_fixture.cc client/cli_test.cc client/program.cc
                    process/server_process.cc
            LIBS castor_client nlohmann_json::nlohmann_json LABELS integration)
target_compile_definitions(cli_test PRIVATE
  CASTOR_PROGRAM="$<TARGET_FILE:castor>"
  CASTOR_SERVER_PROGRAM="$<TARGET_FILE:castor-server>"
  CASTOR_TEST_MODEL="${CASTOR_DEPS}/minilm")
add_dependencies(cli_test castor castor-server)

castor_test(cli_models_test SINGLE_THREADED
            SOURCES client/cli_models_test.cc client/program.cc process/server_process.cc
            LIBS castor_client nlohmann_json::nlohmann_json LABELS integration)
target_compile_definitions(cli_models_test PRIVATE
  CASTOR_PROGRAM="$<TARGET_FILE:castor>"
  CASTOR_SERVER_PROGRAM="$<TARGET_FILE:castor-server>"
  CASTOR_GOLDEN_ENCODER="${CMAKE_SOURCE_DIR}/tests/golden/encoder")
add_dependencies(cli_models_test castor castor-server)

castor_test(tools_tls_test SINGLE_THREADED
            SOURCES client/program.cc client/tools_tls_test.cc
            LIBS castor_client nlohmann_json::nlohmann_json castor_secure_server LABELS integration)
target_compile_definitions(tools_tls_test PRIVATE
  CASTOR_PROGRAM="$<TARGET_FILE:castor>" CASTOR_LOAD_PROGRAM="$<TARGET_FILE:castor-load>")
add_dependencies(tools_tls_test castor castor-load)

castor_test(top_test SINGLE_THREADED
            SOURCES client/program.cc client/top_test.cc
            LIBS castor_server_fixture LABELS integration)
target_compile_definitions(top_test PRIVATE CASTOR_PROGRAM="$<TARGET_FILE:castor>")
add_dependencies(top_test castor)
