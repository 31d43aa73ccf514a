// When "auto" falls back to the CPU: only for lack of a GPU.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "engine/device/device.h"
#include "tests/support/temporary_folder.h"

namespace castor {
namespace {

using ::testing::HasSubstr;

class OpenDeviceTest : public testing::Test {
 protected:
  OpenDeviceTest() {
    options_.cpu_threads = 1;
    std::filesystem::create_directory(folder_ / "dev");
    // Any library that loads stands in for the driver.
    places_ = {"libm.so.6", CASTOR_FAKE_CUDA_MODULE, folder_ / "dev"};
  }
  ~OpenDeviceTest() override { unsetenv("CASTOR_FAKE_CUDA_BROKEN"); }

  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }

  void ExpectCpuBecause(const std::string& cause) {
    const auto device = OpenDeviceAt(options_, places_);
    ASSERT_TRUE(device.ok()) << device.status();
    EXPECT_EQ((*device)->info().name, "cpu");
    EXPECT_THAT((*device)->info().backend, HasSubstr(cause));
  }

  void ExpectErrorBecause(const std::string& cause) {
    const auto device = OpenDeviceAt(options_, places_);
    ASSERT_FALSE(device.ok()) << "went on with " << (*device)->info().name;
    EXPECT_THAT(std::string(device.status().message()), HasSubstr(cause));
  }

  const TemporaryFolder folder_;
  EngineOptions options_;
  CudaPlaces places_;
};

TEST_F(OpenDeviceTest, WithoutADriverOnTheCpu) {
  places_.driver = folder_ / "libcuda.so.1";
  ExpectCpuBecause("no NVIDIA driver");
}

TEST_F(OpenDeviceTest, ADriverThatDoesNotLoadIsAnError) {
  places_.driver = Write("libcuda.so.1", "no library");
  ExpectErrorBecause("the NVIDIA driver does not load");
}

TEST_F(OpenDeviceTest, ABuildWithoutCudaMindsAGpuThatIsThere) {
  places_.module = folder_ / "libcastor_cuda.so";
  Write("dev/nvidiactl", "");
  Write("dev/nvidia-uvm", "");
  ExpectCpuBecause("no CUDA module");
  Write("dev/nvidia0", "");
  ExpectErrorBecause("no CUDA module");
}

TEST_F(OpenDeviceTest, AModuleThatDoesNotLoadIsAnError) {
  places_.module = Write("libcastor_cuda.so", "no library");
  ExpectErrorBecause("the CUDA module does not load");
  places_.module = "/lib/x86_64-linux-gnu/libm.so.6";
  ExpectErrorBecause("not a CUDA module");
}

TEST_F(OpenDeviceTest, TheModulesWordDecides) {
  ExpectCpuBecause("no device here");
  setenv("CASTOR_FAKE_CUDA_BROKEN", "1", 1);
  ExpectErrorBecause("the device is on fire");
  options_.device = "cpu";
  ExpectCpuBecause("LibTorch");
}

TEST_F(OpenDeviceTest, CudaByNameNeverGoesOnWithTheCpu) {
  options_.device = "cuda";
  ExpectErrorBecause("no device here");
  options_.device = "cuda:1";
  places_.driver = folder_ / "libcuda.so.1";
  ExpectErrorBecause("no NVIDIA driver");
}

}  // namespace
}  // namespace castor
