# Everything that Castor links, as targets. Debian's packages are found by their own CMake or
# pkg-config files; what deploy/setup.sh put under CASTOR_DEPS is imported by path.

list(PREPEND CMAKE_PROGRAM_PATH "${CASTOR_DEPS}/bin")  # a newer cargo, promtool

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(ZLIB REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(OpenSSL REQUIRED)
find_program(CASTOR_GRPC_PLUGIN grpc_cpp_plugin REQUIRED)
find_program(CASTOR_CARGO cargo PATHS "$ENV{HOME}/.cargo/bin" REQUIRED)

file(REAL_PATH "${CASTOR_DEPS}" deps)
if(NOT EXISTS "${deps}/torch-lib/libtorch_cpu.so")
  message(FATAL_ERROR "LibTorch is not in ${CASTOR_DEPS}: run deploy/setup.sh first")
endif()
# REAL_PATH of each link, so that every checkout compiles with the same paths and shares ccache.
file(REAL_PATH "${deps}/torch-lib" torch_lib)

# LibTorch: imported by path, because find_package(Torch) of a CUDA wheel needs a whole toolkit, and
# through a filtered include folder, because the wheel's own contains protobuf 3.13 headers.
function(castor_import_torch name file)
  add_library(${name} SHARED IMPORTED GLOBAL)
  set_target_properties(${name} PROPERTIES IMPORTED_LOCATION "${torch_lib}/${file}")
  target_include_directories(${name} SYSTEM INTERFACE
    "${deps}/torch-include" "${deps}/torch-include/torch/csrc/api/include")
endfunction()
castor_import_torch(torch_c10 libc10.so)
castor_import_torch(torch_cpu libtorch_cpu.so)
target_link_libraries(torch_cpu INTERFACE torch_c10)
# LibTorch's own OpenMP runtime, for our loops on its threads: there must be only one.
add_library(torch_gomp SHARED IMPORTED GLOBAL)
set_target_properties(torch_gomp PROPERTIES IMPORTED_LOCATION "${torch_lib}/libgomp.so.1")

# CUDA: the compiler and libraries, from wheels next to LibTorch's.
set(CASTOR_WITH_CUDA OFF)
set(nvcc "${deps}/cuda/bin/nvcc")
if(CASTOR_CUDA STREQUAL "ON" AND NOT EXISTS "${nvcc}")
  message(FATAL_ERROR "CASTOR_CUDA=ON, but there is no CUDA compiler: run deploy/setup.sh --cuda")
endif()
if(NOT CASTOR_CUDA STREQUAL "OFF" AND NOT CASTOR_SANITIZE AND EXISTS "${nvcc}")
  file(REAL_PATH "${deps}/cuda" cuda_root)
  set(CMAKE_CUDA_COMPILER "${cuda_root}/bin/nvcc")
  set(CMAKE_CUDA_ARCHITECTURES "${CASTOR_CUDA_ARCHITECTURES}")
  enable_language(CUDA)
  # CMake 3.25 does not know that this compiler supports CUDA20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  set(CASTOR_WITH_CUDA ON)
  add_library(cuda_runtime SHARED IMPORTED GLOBAL)
  set_target_properties(cuda_runtime PROPERTIES IMPORTED_LOCATION "${cuda_root}/lib/libcudart.so.13")
  target_include_directories(cuda_runtime SYSTEM INTERFACE "${cuda_root}/include")
  castor_import_torch(torch_c10_cuda libc10_cuda.so)
  castor_import_torch(torch_cuda libtorch_cuda.so)
  target_link_libraries(torch_c10_cuda INTERFACE torch_c10 cuda_runtime)
  target_link_libraries(torch_cuda INTERFACE torch_cpu torch_c10_cuda)
endif()
message(STATUS "Castor: CUDA module ${CASTOR_WITH_CUDA}")
