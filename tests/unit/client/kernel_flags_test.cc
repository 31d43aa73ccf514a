#include "client/cli/attend/kernel_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace castor::cli {
namespace {

using ::testing::HasSubstr;

v1::AttendRequest RequestOf(const std::string& kernel) {
  v1::AttendRequest request;
  ApplyKernel(kernel, &request);
  return request;
}

// "" if --kernel takes it.
std::string ErrorOf(const std::string& kernel) {
  try {
    CheckKernel(kernel);
    return "";
  } catch (const CLI::ValidationError& error) {
    return error.what();
  }
}

TEST(KernelFlag, EveryKernelOfTheContractIsTaken) {
  const auto& kernels = *v1::AttendRequest::descriptor()->FindOneofByName("kernel");
  for (int i = 0; i < kernels.field_count(); ++i) {
    const std::string& name = kernels.field(i)->name();
    v1::EncodeRequest encode;
    ApplyKernel(name, &encode);
    EXPECT_EQ(RequestOf(name).kernel_case(), kernels.field(i)->number());
    EXPECT_NE(encode.kernel_case(), v1::EncodeRequest::KERNEL_NOT_SET);
  }
  EXPECT_EQ(RequestOf("").kernel_case(), v1::AttendRequest::KERNEL_NOT_SET);
}

TEST(KernelFlag, ParametersOfEveryTypeAreSetAndShownAsTheyAreGiven) {
  const std::string text =
      "clusters=64,bits=7,hash-bias=false,seed=18446744073709551615,topk=9,clustering=query-space,"
      "rest-mass=query";
  const v1::ImprovedClustered improved =
      RequestOf("improved-clustered," + text).improved_clustered();
  EXPECT_EQ(improved.seed(), UINT64_MAX);
  EXPECT_TRUE(improved.has_hash_bias());
  EXPECT_EQ(improved.rest_mass(), v1::ImprovedClustered::QUERY);
  EXPECT_EQ(ParametersText(improved), text);
  const v1::Automatic automatic =
      RequestOf("automatic,allowed=improved_clustered,allowed=vanilla,max-relative-error=0.5")
          .automatic();
  EXPECT_THAT(automatic.allowed(), ::testing::ElementsAre(v1::IMPROVED_CLUSTERED, v1::VANILLA));
  EXPECT_EQ(automatic.max_relative_error(), 0.5);
  EXPECT_EQ(RequestOf("cast,layer=m/0").cast().layer(), "m/0");
}

TEST(KernelFlag, ErrorsNameTheAllowedValues) {
  EXPECT_THAT(ErrorOf("clusterd"), HasSubstr("'clusterd' is not one of vanilla, clustered,"));
  EXPECT_THAT(
      ErrorOf("clustered,topk=5"),
      HasSubstr("'topk' is not a parameter of clustered, which takes clusters, iterations"));
  EXPECT_THAT(ErrorOf("clustered,clusters=65537"), HasSubstr("clusters: '65537'"));
  EXPECT_THAT(ErrorOf("clustered,clusters=65537"), HasSubstr("from 1 to 65536"));
  EXPECT_THAT(ErrorOf("clustered,clusters"), HasSubstr("clusters: ''"));
  EXPECT_THAT(ErrorOf("clustered,seed=-1"), HasSubstr("seed"));
  EXPECT_THAT(ErrorOf("automatic,max-relative-error=nan"), HasSubstr("max-relative-error"));
  EXPECT_THAT(ErrorOf("vanilla,causal=1"), HasSubstr("neither true nor false"));
  EXPECT_THAT(ErrorOf("cast,clustering=best"),
              HasSubstr("not one of top-k, single-assignment-top-k"));
  EXPECT_THAT(ErrorOf("vanilla,"), HasSubstr("'' is not a parameter"));
  EXPECT_THROW(RequestOf("cast,gate=/none.npy"), CLI::Error);
}

TEST(KernelFlag, HelpStatesRangesAndDefaults) {
  CLI::App app;
  std::string kernel;
  AddKernelFlag(&app, &kernel);
  EXPECT_THAT(app.help(), HasSubstr("clusters=1..65536 (100), iterations=1..1000 (10"));
  EXPECT_THAT(app.help(), HasSubstr("rest-mass=centroid|query"));
}

}  // namespace
}  // namespace castor::cli
