// ModelStreamInfer: answers and errors on one stream, and how it ends.
#include <grpcpp/support/sync_stream.h>

#include "tests/integration/oip/oip_fixture.h"

namespace castor::testing {
namespace {

using inference::ModelStreamInferResponse;

class OipStreamTest : public OipTest {
 protected:
  // The answers to the requests by their ids, and how the stream ended.
  grpc::Status Stream(const std::vector<ModelInferRequest>& requests, bool codes,
                      std::vector<ModelStreamInferResponse>* answers) {
    grpc::ClientContext context;
    if (codes) context.AddMetadata("triton_grpc_error", "true");
    const auto stream = stub_->ModelStreamInfer(&context);
    for (const ModelInferRequest& request : requests) stream->Write(request);
    stream->WritesDone();
    for (ModelStreamInferResponse answer; stream->Read(&answer);) answers->push_back(answer);
    return stream->Finish();
  }

  static ModelInferRequest Bad() {
    ModelInferRequest request = Attention(3);
    request.set_id("bad");
    request.mutable_inputs(0)->set_datatype("FP8");
    return request;
  }
};

TEST_F(OipStreamTest, AnErrorIsToldInPlaceAndTheStreamGoesOn) {
  ModelInferRequest strange = Attention(3);
  strange.set_model_name("strange");
  std::vector<ModelStreamInferResponse> answers;
  const grpc::Status ended =
      Stream({Attention(3), Bad(), strange, Texts({"cat"})}, false, &answers);
  EXPECT_TRUE(ended.ok()) << ended.error_message();
  ASSERT_EQ(answers.size(), 4u);
  int good = 0;
  for (const ModelStreamInferResponse& answer : answers) {
    const ModelInferResponse& inferred = answer.infer_response();
    EXPECT_TRUE(inferred.parameters().at("triton_final_response").bool_param());
    if (answer.error_message().empty()) {
      ++good;
      EXPECT_GT(inferred.raw_output_contents(0).size(), 0u);
    } else if (inferred.id() == "bad") {
      EXPECT_TRUE(answer.error_message().starts_with("[INVALID_FIELD] query"))
          << answer.error_message();
      EXPECT_EQ(inferred.model_name(), "castor_attention");
    } else {
      EXPECT_TRUE(answer.error_message().starts_with("[MODEL_NOT_FOUND] "));
    }
  }
  EXPECT_EQ(good, 2);
}

// As Triton answers the requests to a model that has one answer for each.
TEST_F(OipStreamTest, AnswersAndErrorsComeInTheOrderOfTheirRequests) {
  std::vector<ModelInferRequest> requests;
  for (const int tokens : {3000, 3, 2000, 5}) {
    requests.push_back(Attention(tokens));
    requests.push_back(Bad());
    requests.push_back(Texts({"cat"}));
  }
  for (size_t i = 0; i < requests.size(); ++i) requests[i].set_id(std::to_string(i));
  std::vector<ModelStreamInferResponse> answers;
  const grpc::Status ended = Stream(requests, false, &answers);
  EXPECT_TRUE(ended.ok()) << ended.error_message();
  ASSERT_EQ(answers.size(), requests.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i].infer_response().id(), std::to_string(i));
    EXPECT_EQ(answers[i].error_message().empty(), i % 3 != 1);
  }
}

TEST_F(OipStreamTest, TheFirstErrorEndsAStreamThatAsksForCodes) {
  std::vector<ModelStreamInferResponse> answers;
  std::vector<ModelInferRequest> requests(20, Attention(3));
  requests.front() = Bad();
  const grpc::Status ended = Stream(requests, true, &answers);
  EXPECT_EQ(ended.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(DetailsOf(ended).info.reason(), "INVALID_FIELD");
  EXPECT_TRUE(answers.empty());
  answers.clear();
  EXPECT_TRUE(Stream({Attention(3), Attention(4)}, true, &answers).ok());
  EXPECT_EQ(answers.size(), 2u);
  EXPECT_TRUE(AwaitNoCalls());
}

}  // namespace
}  // namespace castor::testing
