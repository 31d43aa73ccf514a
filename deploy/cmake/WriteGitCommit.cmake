# Run at build time: cmake -DSOURCE_DIR=... -DOUTPUT=... -P WriteGitCommit.cmake
#
# Writes a header that says which commit SOURCE_DIR is at: CASTOR_GIT_COMMIT of the environment if
# that is set (containers have no checkout), else what git says, else "unknown". A header that is up
# to date is left alone, so that nothing is rebuilt.
set(commit "$ENV{CASTOR_GIT_COMMIT}")
if(NOT commit)
  execute_process(COMMAND git rev-parse --short=12 HEAD WORKING_DIRECTORY "${SOURCE_DIR}"
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
                  RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    set(commit unknown)
  endif()
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT "#define CASTOR_GIT_COMMIT \"${commit}\"\n" @ONLY)
