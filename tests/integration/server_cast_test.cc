// CAST attention from a client's bytes to its answer, compared with its slow twin.

#include <cmath>
#include <fstream>
#include <string>

#include "tests/integration/kernels_fixture.h"

namespace castor::testing {
namespace {

TEST_F(ServerKernelsTest, CastHasNoLogSumExp) {
  StartReal();
  CastProblem made(SpecOf(Cast{}), {9}, random_);
  v1::AttendRequest request = RequestOf(made);
  FillCast(made, &request);
  request.set_return_log_sum_exp(true);
  grpc::ClientContext context;
  EXPECT_EQ(Outcome(attention_->Attend(&context, request, &response_)),
            "INVALID_ARGUMENT INVALID_FIELD return_log_sum_exp");

  grpc::ClientContext describe;
  v1::ServerInfo info;
  ASSERT_TRUE(v1::ServerService::NewStub(channel_)->GetServerInfo(&describe, {}, &info).ok());
  ASSERT_EQ(info.kernels_size(), 4);
  for (const v1::KernelInfo& kernel : info.kernels()) {
    EXPECT_EQ(kernel.log_sum_exp(), kernel.name() != v1::CAST) << kernel.ShortDebugString();
    EXPECT_EQ(kernel.key_bias(), kernel.name() != v1::CAST) << kernel.ShortDebugString();
    EXPECT_EQ(kernel.positions(), kernel.name() == v1::VANILLA) << kernel.ShortDebugString();
    EXPECT_EQ(kernel.softcap(), kernel.name() == v1::VANILLA) << kernel.ShortDebugString();
  }
}

TEST_F(ServerKernelsTest, CastAnswersAsItsTwinInEveryReading) {
  StartReal();
  for (int bits = 0; bits < 16; ++bits) {
    Cast cast;
    const bool single = bits & 1, laplace = bits & 2, plain = bits & 4, per_head = bits & 8;
    if (single) cast.clustering = Cast::Clustering::kSingleAssignmentTopK;
    if (laplace) cast.attention_function = Cast::AttentionFunction::kLaplace;
    if (plain) cast.gate_temperature = Cast::GateTemperature::kNone;
    if (per_head) cast.head_clustering = Cast::HeadClustering::kPerHead;
    const auto drawn = attention::CastProblemWithMargins(SpecOf(cast), {90, 2, 41}, random_);
    CastProblem& made = *drawn;
    v1::AttendRequest request = RequestOf(made);
    v1::Cast& message = *request.mutable_cast();
    FillCast(made, &request);
    if (single) message.set_clustering(v1::Cast::SINGLE_ASSIGNMENT_TOP_K);
    if (laplace) message.set_attention_function(v1::Cast::LAPLACE);
    if (plain) message.set_gate_temperature(v1::Cast::NONE);
    if (per_head) message.set_head_clustering(v1::Cast::PER_HEAD);
    Attend(request, &made);
    EXPECT_EQ(response_.kernel().name(), v1::CAST);
    EXPECT_LE(RelativeError(made.problem, made.Reference()), 1e-5) << "reading " << bits;
  }
}

TEST_F(ServerKernelsTest, SurrogateTokensComeFromALoadedLayer) {
  const auto drawn = attention::CastProblemWithMargins(SpecOf(Cast{}), {70, 12}, random_);
  CastProblem& made = *drawn;
  // One tensor, with a header padded to 8 bytes as writers do.
  const std::string data(reinterpret_cast<const char*>(made.surrogates.data()),
                         made.surrogates.bytes().size());
  std::string header = R"({"layers.0.surrogate_tokens":{"dtype":"F32","shape":[5,3,32],)"
                       R"("data_offsets":[0,)" +
                       std::to_string(data.size()) + "]}}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t length = header.size();
  const std::string path =
      ::testing::TempDir() + "castor-cast-" + std::to_string(seed_) + ".safetensors";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(&length), sizeof(length))
      .write(header.data(), static_cast<std::streamsize>(header.size()))
      .write(data.data(), static_cast<std::streamsize>(data.size()));
  StartReal({{.name = "long", .directory = path}});
  std::remove(path.c_str());

  v1::AttendRequest request = RequestOf(made);
  FillCast(made, &request);
  request.mutable_cast()->set_layer("long/0");
  request.mutable_cast()->clear_surrogate_tokens();
  Attend(request, &made);
  EXPECT_LE(RelativeError(made.problem, made.Reference()), 1e-5);

  request.mutable_cast()->set_layer("long/1");
  grpc::ClientContext unknown;
  EXPECT_EQ(attention_->Attend(&unknown, request, &response_).error_code(),
            grpc::StatusCode::NOT_FOUND);

  v1::EncodeRequest encode = EncodeOf({"text"});
  encode.set_model("long");
  grpc::ClientContext context;
  v1::EncodeResponse encoded;
  EXPECT_EQ(encoder_->Encode(&context, encode, &encoded).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(ServerKernelsTest, NonFiniteCastInputsAreRefusedByName) {
  StartReal();
  CastProblem made(SpecOf(Cast{}), {9}, random_);
  made.gate[4] = NAN;
  v1::AttendRequest request = RequestOf(made);
  request.set_check_finite(true);
  FillCast(made, &request);
  grpc::ClientContext context;
  const grpc::Status status = attention_->Attend(&context, request, &response_);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(status.error_message().find("cast.gate"), std::string::npos) << status.error_message();
}

}  // namespace
}  // namespace castor::testing
