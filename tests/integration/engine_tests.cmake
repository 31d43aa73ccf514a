# The engine without a server, on the real CPU device.
castor_test(engine_test SOURCES engine_test.cc LIBS castor_engine LABELS integration)

# Both an example to read and a test: it checks its own answer.
add_executable(engine_example engine_example.cc)
target_link_libraries(engine_example PRIVATE castor_engine)
add_test(NAME engine_example COMMAND engine_example)
set_tests_properties(engine_example PROPERTIES LABELS integration TIMEOUT 60)
