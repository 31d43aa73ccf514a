# Whole servers over real sockets, with a scripted engine and with the real one.

add_library(castor_server_fixture STATIC access/secure_fixture.cc server_fixture.cc)
find_package(GTest REQUIRED)
target_link_libraries(castor_server_fixture PUBLIC castor_fake_engine castor_server
                      castor_test_authority GTest::gtest)

pkg_check_modules(nghttp2 REQUIRED IMPORTED_TARGET libnghttp2)  # for trailer_client.h
castor_test(server_test
  SOURCES server_admission_test.cc access/server_authorize_test.cc server_call_test.cc
          server_choice_test.cc
          observed/server_health_port_test.cc
          server_hostile_test.cc client_stream_test.cc
          server_kernels_test.cc server_lifecycle_test.cc
          oip/oip_encoder_test.cc oip/oip_test.cc
          observed/server_metrics_test.cc server_reflection_test.cc
          shared_memory/server_shared_memory_faults_test.cc shared_memory/server_shared_memory_test.cc
          server_stream_test.cc server_transport_test.cc
  LIBS castor_server_fixture castor_client castor_twins PkgConfig::nghttp2
  LABELS integration)
target_compile_definitions(server_test PRIVATE
  CASTOR_FAMILIES="${CMAKE_SOURCE_DIR}/tests/golden/encoder/families"
  CASTOR_HEADS="${CMAKE_SOURCE_DIR}/tests/golden/encoder/heads"
  CASTOR_TINY_MODEL="${CMAKE_SOURCE_DIR}/tests/golden/encoder/tiny_bert")

castor_test(server_heads_test
  SOURCES encoder/server_adapters_test.cc encoder/server_answers_test.cc encoder/server_cache_test.cc
          encoder/server_heads_test.cc encoder/server_models_test.cc encoder/server_outputs_test.cc
          encoder/server_rerank_test.cc
          tei/server_tei_stream_test.cc tei/server_tei_test.cc
          encoder/server_tokens_test.cc http/server_http_answers_test.cc http/server_http_test.cc
  LIBS castor_server_fixture nlohmann_json::nlohmann_json
  LABELS integration)
target_compile_definitions(server_heads_test PRIVATE
  CASTOR_GOLDEN_ENCODER="${CMAKE_SOURCE_DIR}/tests/golden/encoder")

castor_test(server_access_test
  SOURCES access/server_callers_test.cc access/server_rotation_test.cc
          access/server_tenants_test.cc access/server_tls_test.cc
  LIBS castor_server_fixture castor_client LABELS integration)

castor_test(server_trace_test
  SOURCES observed/server_trace_test.cc
  LIBS castor_server_fixture castor_trace_collector LABELS integration)
target_compile_definitions(server_trace_test PRIVATE
  CASTOR_TINY_MODEL="${CMAKE_SOURCE_DIR}/tests/golden/encoder/tiny_bert")

if(NOT CASTOR_SANITIZE)  # sanitizers have their own allocator
  # A separate program, because it replaces operator new. It looks up functions by their addresses.
  castor_test(server_memory_test
    SOURCES server_memory_test.cc LIBS castor_server_fixture ${CMAKE_DL_LIBS} LABELS integration)
  set_target_properties(server_memory_test PROPERTIES ENABLE_EXPORTS ON)
  target_compile_definitions(server_memory_test PRIVATE
    CASTOR_GOLDEN_ENCODER="${CMAKE_SOURCE_DIR}/tests/golden/encoder")
endif()

castor_test(server_process_test
  SOURCES process/server_process.cc process/server_process_test.cc process/server_start_test.cc
  LIBS castor_server_fixture LABELS integration)
target_compile_definitions(server_process_test PRIVATE
  CASTOR_GOLDEN_ENCODER="${CMAKE_SOURCE_DIR}/tests/golden/encoder"
  CASTOR_SERVER_PROGRAM="$<TARGET_FILE:castor-server>"
  CASTOR_TEST_FOLDER="${CMAKE_CURRENT_SOURCE_DIR}")
add_dependencies(server_process_test castor-server)
set_tests_properties(server_test server_process_test PROPERTIES COST 500)
