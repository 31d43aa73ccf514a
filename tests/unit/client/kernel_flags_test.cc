#include "client/cli/kernel_flags.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace castor::cli {
namespace {

// The name of the request's kernel field that is set, with dashes.
template <typename Request>
std::string KernelOf(const Request& request) {
  const auto* const oneof = Request::descriptor()->FindOneofByName("kernel");
  const auto* const field = request.GetReflection()->GetOneofFieldDescriptor(request, oneof);
  std::string name = field == nullptr ? "" : field->name();
  for (char& c : name) c = c == '_' ? '-' : c;
  return name;
}

TEST(KernelFlags, NamesAreTheWires) {
  EXPECT_EQ(KernelNames(),
            (std::vector<std::string>{"vanilla", "clustered", "improved-clustered", "cast"}));
}

// Every kernel on the wire and the automatic choice can be requested.
TEST(KernelFlags, EveryKernelSetsItsOwnField) {
  std::vector<std::string> names = KernelNames();
  names.push_back("automatic");
  for (const std::string& name : names) {
    KernelFlags flags;
    flags.kernel = name;
    v1::AttendRequest attend;
    ApplyKernel(flags, &attend);
    EXPECT_EQ(KernelOf(attend), name);
    v1::EncodeRequest encode;
    ApplyKernel(flags, &encode);
    EXPECT_EQ(KernelOf(encode), name);
  }
}

TEST(KernelFlags, AllowedKernelsKeepTheirOrder) {
  KernelFlags flags;
  flags.kernel = "automatic";
  flags.allowed = {"improved-clustered", "vanilla"};
  v1::AttendRequest request;
  ApplyKernel(flags, &request);
  EXPECT_EQ(request.automatic().min_cosine(), 0);
  ASSERT_EQ(request.automatic().allowed_size(), 2);
  EXPECT_EQ(request.automatic().allowed(0), v1::IMPROVED_CLUSTERED);
  EXPECT_EQ(request.automatic().allowed(1), v1::VANILLA);
}

}  // namespace
}  // namespace castor::cli
