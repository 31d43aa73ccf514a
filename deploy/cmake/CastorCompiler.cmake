# The language standard, warnings, sanitizers, linker and compiler cache that all targets share.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Warnings are errors with the compilers that CI runs. A new warning of another compiler must not
# keep a user from building.
set(CASTOR_WERROR AUTO CACHE STRING "Warnings are errors: ON, OFF, or AUTO (with g++ 12 and clang 16)")
set(werror ${CASTOR_WERROR})
if(werror STREQUAL "AUTO")
  string(REGEX MATCH "^[0-9]+" major "${CMAKE_CXX_COMPILER_VERSION}")
  set(werror OFF)
  if("${CMAKE_CXX_COMPILER_ID} ${major}" MATCHES "^(GNU 12|Clang 16)$")
    set(werror ON)
  endif()
endif()
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra>)
if(werror)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wthread-safety>)
endif()

# A folder's files are compiled a dozen at a time, since most of the time goes to headers that they
# share. -DCMAKE_UNITY_BUILD=OFF compiles each alone, which suits work on a few of them.
option(CMAKE_UNITY_BUILD "Compile a folder's files together" ON)
set(CMAKE_UNITY_BUILD_BATCH_SIZE 12)

if(CASTOR_SANITIZE)
  # Whatever the build type: assertions on, and no optimisation, which would take most of the time
  # (castor_compute() asks for some). The last flag gives inlined frames their full names, which
  # tests/sanitizers/tsan.supp matches.
  add_compile_options(-fsanitize=${CASTOR_SANITIZE} -fno-omit-frame-pointer -O0 -UNDEBUG
                      -g1 $<$<CXX_COMPILER_ID:Clang>:-fdebug-info-for-profiling>)
  add_link_options(-fsanitize=${CASTOR_SANITIZE} -Wl,--allow-shlib-undefined)
  if(CASTOR_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()

find_program(CASTOR_MOLD mold)
if(CASTOR_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

find_program(CASTOR_CCACHE ccache)
if(CASTOR_CCACHE)
  # base_dir lets checkouts at different paths share the cache; locale, callers of any language.
  set(launcher env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=time_macros,include_file_mtime,include_file_ctime,locale,pch_defines
      ${CASTOR_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
endif()
