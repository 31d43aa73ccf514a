#include "client/cli/kernel_flags.h"

#include <gtest/gtest.h>

#include <algorithm>
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

// What a command line of these flags ends in; empty: nothing is wrong.
std::string ErrorOf(std::vector<std::string> arguments, bool encode) {
  CLI::App app;
  KernelFlags flags;
  AddKernelFlags(&app, &flags);
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(arguments);
    CheckKernelFlags(app, flags, encode);
    return "";
  } catch (const CLI::Error& error) {
    return error.what();
  }
}

TEST(KernelFlags, FlagsThatTheKernelDoesNotReadNameWhatTheyNeed) {
  EXPECT_EQ(ErrorOf({"--clusters", "5"}, false),
            "--clusters: needs --kernel clustered or improved-clustered");
  EXPECT_EQ(ErrorOf({"--kernel", "clustered", "--topk", "5"}, false),
            "--topk: needs --kernel improved-clustered");
  EXPECT_EQ(ErrorOf({"--max-relative-error", "0.1"}, false),
            "--max-relative-error: needs --kernel automatic");
  EXPECT_EQ(ErrorOf({"--min-cosine", "0.9"}, true), "--min-cosine: needs --kernel automatic");
  EXPECT_EQ(ErrorOf({"--kernel", "clustered", "--causal"}, false),
            "--causal: needs --kernel vanilla");
  EXPECT_NE(ErrorOf({"--kernel", "automatic", "--max-relative-error", "0.1"}, true), "");
  EXPECT_NE(ErrorOf({"--kernel", "automatic", "--min-cosine", "0.1"}, false), "");
  EXPECT_EQ(ErrorOf({"--causal"}, false), "");
  EXPECT_EQ(ErrorOf({"--kernel", "automatic", "--min-cosine", "0.1", "--allow", "vanilla"}, true),
            "");
}

// Every flag but --kernel belongs to some kernels, and is refused beside the others.
TEST(KernelFlags, EveryFlagBelongsToAKernel) {
  CLI::App app;
  KernelFlags flags;
  AddKernelFlags(&app, &flags);
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (name == "--kernel" || name.find("--help") != std::string::npos) continue;
    // One of these values every flag takes.
    int refused = 0;
    for (const char* kernel : {"vanilla", "clustered", "improved-clustered", "cast", "automatic"}) {
      std::string error;
      for (const char* value :
           {"1", "hash", "centroid", "top-k", "softmax", "none", "shared", "vanilla", ""}) {
        std::vector<std::string> arguments = {"--kernel", kernel, name};
        if (*value != '\0') arguments.emplace_back(value);
        error = ErrorOf(arguments, /*encode=*/name == "--min-cosine");
        if (error.empty() || error.find("needs --kernel") != std::string::npos) break;
      }
      refused += error.empty() ? 0 : 1;
    }
    EXPECT_GE(refused, 3) << name;
    EXPECT_LT(refused, 5) << name;
  }
}

}  // namespace
}  // namespace castor::cli
