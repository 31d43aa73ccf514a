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
