// The CUDA module loads on a machine without a driver and says what is missing.

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <memory>

#include "engine/base/error.h"
#include "engine/device/device.h"
#include "engine/engine.h"

namespace castor {
namespace {

using OpenFn = void (*)(int, const EngineOptions*, std::unique_ptr<Device>*, absl::Status*);

class CudaModuleTest : public testing::Test {
 protected:
  void SetUp() override {
    void* module = dlopen(CASTOR_CUDA_MODULE, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(module, nullptr) << dlerror();
    open_ = reinterpret_cast<OpenFn>(dlsym(module, "castor_open_cuda_device"));
    ASSERT_NE(open_, nullptr) << dlerror();
    if (cudaGetDeviceCount(&devices_) != cudaSuccess) devices_ = 0;
  }

  absl::Status Open(int index) {
    const EngineOptions options;
    absl::Status status = absl::UnknownError("not written");
    open_(index, &options, &device_, &status);
    return status;
  }

  OpenFn open_ = nullptr;
  int devices_ = 0;
  std::unique_ptr<Device> device_;
};

TEST_F(CudaModuleTest, OpensADeviceOrSaysWhyNot) {
  const absl::Status status = Open(0);
  if (devices_ > 0) {
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(device_->info().name, "cuda:0");
    EXPECT_TRUE(device_->healthy());
    return;
  }
  EXPECT_EQ(ReasonOf(status), Reason::kKernelNotAvailable);
  EXPECT_NE(status.message().find("CUDA cannot be used"), absl::string_view::npos)
      << status.message();
  EXPECT_EQ(device_, nullptr);
}

TEST_F(CudaModuleTest, RefusesAnIndexThatIsNotThere) {
  for (const int index : {-1, devices_, 1 << 20}) {
    EXPECT_EQ(ReasonOf(Open(index)), Reason::kKernelNotAvailable) << index;
    EXPECT_EQ(device_, nullptr);
  }
}

}  // namespace
}  // namespace castor
