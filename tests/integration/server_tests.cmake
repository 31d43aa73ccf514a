# Whole servers over real sockets: with an engine that does as it is told, and with the real one.

add_library(castor_server_fixture STATIC fake_engine.cc server_fixture.cc)
find_package(GTest REQUIRED)
target_link_libraries(castor_server_fixture PUBLIC castor_server GTest::gtest)

castor_test(server_call_test SOURCES server_call_test.cc LIBS castor_server_fixture
            LABELS integration)
