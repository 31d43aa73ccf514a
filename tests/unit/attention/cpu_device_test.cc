// The CPU device and the choice of a device, where the attention service meets the kernels.

#include "engine/device/cpu_device.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "engine/base/error.h"
#include "tests/support/attention/compare.h"
#include "tests/support/attention/spec.h"
#include "tests/support/seeded.h"
#include "tests/support/twins/vanilla.h"

namespace castor {
namespace {

using attention::OwnedProblem;
using attention::Spec;

std::unique_ptr<Device> OpenCpu(int threads) {
  EngineOptions options;
  options.device = "cpu";
  options.cpu_threads = threads;
  absl::StatusOr<std::unique_ptr<Device>> device = OpenDevice(options);
  EXPECT_TRUE(device.ok()) << device.status();
  return *std::move(device);
}

Spec SpecOf(DType dtype) { return attention::MakeSpec(dtype, Vanilla{}, 4, 32, 32); }

// Requests of very different lengths, some of several sequences.
std::vector<std::unique_ptr<OwnedProblem>> MakeRequests(const Spec& spec, std::mt19937& random) {
  std::vector<std::unique_ptr<OwnedProblem>> requests;
  for (const std::vector<int32_t>& lengths :
       std::vector<std::vector<int32_t>>{{1}, {700, 2}, {50, 51, 52}, {193}, {8, 1, 384}}) {
    requests.push_back(std::make_unique<OwnedProblem>(spec, lengths, lengths));
    requests.back()->Randomize(random);
  }
  return requests;
}

ExecutionTimes RunBatch(Device& device, const Spec& spec,
                        const std::vector<OwnedProblem*>& requests) {
  AttentionBatch batch;
  batch.spec = spec;
  for (const OwnedProblem* request : requests) batch.requests.push_back(request->view);
  absl::StatusOr<std::unique_ptr<Execution>> execution = device.Launch(batch, RunToEnd());
  EXPECT_TRUE(execution.ok()) << execution.status();
  if (!execution.ok()) return {};
  absl::StatusOr<ExecutionTimes> times = (*execution)->Wait();
  EXPECT_TRUE(times.ok()) << times.status();
  return times.value_or(ExecutionTimes{});
}

std::vector<OwnedProblem*> Pointers(const std::vector<std::unique_ptr<OwnedProblem>>& owned) {
  std::vector<OwnedProblem*> pointers;
  for (const auto& problem : owned) pointers.push_back(problem.get());
  return pointers;
}

TEST(CpuDeviceTest, DescribesItself) {
  const std::unique_ptr<Device> device = OpenCpu(2);
  EXPECT_EQ(device->info().name, "cpu");
  EXPECT_EQ(device->info().threads, 2);
  EXPECT_FALSE(device->info().description.empty());
  EXPECT_GT(device->info().memory_bytes, 0);
  EXPECT_NE(device->info().backend.find("LibTorch"), std::string::npos);
  EXPECT_EQ(device->depth(), 1);
  EXPECT_TRUE(device->healthy());
  EXPECT_EQ(device->memory().device_allocated_bytes, 0);
  ASSERT_NE(device->host_pool(), nullptr);
}

TEST(CpuDeviceTest, ComputesAndReports) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::unique_ptr<Device> device = OpenCpu(2);
  const Spec spec = SpecOf(DType::kFloat32);
  const auto requests = MakeRequests(spec, random);
  const ExecutionTimes times = RunBatch(*device, spec, Pointers(requests));
  for (const auto& request : requests) {
    EXPECT_LE(RelativeError(*request, VanillaReference(spec, request->view)), 1e-5);
  }
  EXPECT_EQ(times.backend, attention::FindVariant(device->variants(), spec)->backend);
  EXPECT_GT(times.compute_us, 0);
  EXPECT_EQ(times.padded_tokens, 0);
  EXPECT_GT(times.workspace_bytes, 0);
}

TEST(CpuDeviceTest, RefusesAKernelThatItLacks) {
  const std::unique_ptr<Device> device = OpenCpu(1);
  Spec spec = SpecOf(DType::kFloat32);
  spec.dtype = DType::kInt32;
  AttentionBatch batch;
  batch.spec = spec;
  EXPECT_EQ(ReasonOf(device->Launch(batch, RunToEnd()).status()), Reason::kKernelNotAvailable);
}

TEST(CpuDeviceTest, ReportsAModelThatCannotBeLoaded) {
  const std::unique_ptr<Device> device = OpenCpu(1);
  EXPECT_FALSE(device->LoadModel({"missing", "no/such/directory", DType::kFloat32}).ok());
  EXPECT_EQ(device->memory().device_allocated_bytes, 0);
}

TEST(OpenDeviceTest, RefusesNamesThatMeanNothing) {
  for (const char* name : {"", "gpu", "CPU", "cpu:0", "cuda:", "cuda:-1", "cuda:x", "cuda:1x",
                           "cuda0", "cuda:99999999999"}) {
    EngineOptions options;
    options.device = name;
    EXPECT_EQ(FieldOf(OpenDevice(options).status()), "device") << name;
  }
}

}  // namespace
}  // namespace castor
