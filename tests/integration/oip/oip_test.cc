// The Open Inference Protocol over a socket, beside castor.v1 on the same server.

#include <grpcpp/support/sync_stream.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/integration/oip/oip_fixture.h"

namespace castor::testing {
namespace {

using inference::ModelStreamInferResponse;

TEST_F(OipTest, RawAndTypedContentsGiveTheSameAnswer) {
  const ModelInferRequest raw = Attention(5);
  ModelInferRequest typed = raw;
  typed.clear_raw_input_contents();
  for (int i = 0; i < 3; ++i) {
    const std::string& bytes = raw.raw_input_contents(i);
    const auto* const values = reinterpret_cast<const float*>(bytes.data());
    typed.mutable_inputs(i)->mutable_contents()->mutable_fp32_contents()->Add(
        values, values + bytes.size() / sizeof(float));
  }
  ModelInferResponse from_raw;
  ModelInferResponse from_typed;
  ASSERT_TRUE(Infer(raw, &from_raw).ok());
  ASSERT_TRUE(Infer(typed, &from_typed).ok());
  EXPECT_EQ(from_raw.id(), "mine");
  ASSERT_EQ(from_raw.outputs_size(), 1);
  EXPECT_EQ(from_raw.outputs(0).name(), "output");
  ASSERT_EQ(from_raw.raw_output_contents_size(), 1);
  EXPECT_EQ(from_raw.raw_output_contents(0).size(), raw.raw_input_contents(0).size());
  EXPECT_EQ(from_raw.raw_output_contents(0), from_typed.raw_output_contents(0));
}

TEST_F(OipTest, OutputsComeInTheOrderAskedFor) {
  ModelInferRequest request = Attention(4);
  request.add_outputs()->set_name("log_sum_exp");
  request.add_outputs()->set_name("output");
  ModelInferResponse response;
  ASSERT_TRUE(Infer(request, &response).ok());
  ASSERT_EQ(response.outputs_size(), 2);
  EXPECT_EQ(response.outputs(0).name(), "log_sum_exp");
  EXPECT_EQ(response.raw_output_contents(0).size(), 4u * 2 * sizeof(float));
}

TEST_F(OipTest, ParametersAreThoseOfTheKernel) {
  ModelInferRequest request = Attention(8);
  auto& parameters = *request.mutable_parameters();
  parameters["attention"].set_string_param("clustered");
  parameters["clusters"].set_string_param("3");
  parameters["seed"].set_uint64_param(7);
  parameters["softmax_scale"].set_string_param("0.5");
  parameters["priority"].set_uint64_param(1);
  parameters["timeout"].set_int64_param(5'000'000);
  ModelInferResponse response;
  const grpc::Status status = Infer(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.parameters().at("attention").string_param(), "clustered");
}

TEST_F(OipTest, WhatDoesNotFitIsRefusedByName) {
  struct Case {
    std::string named;
    std::function<void(ModelInferRequest*)> spoil;
  };
  const std::vector<Case> cases = {
      {"query", [](auto* r) { r->mutable_inputs(0)->set_shape(0, 6); }},
      {"query", [](auto* r) { r->mutable_inputs(0)->set_shape(0, int64_t{1} << 62); }},
      {"query", [](auto* r) { r->mutable_inputs(0)->set_shape(0, -1); }},
      {"key", [](auto* r) { r->mutable_inputs(1)->set_datatype("FP8"); }},
      {"key", [](auto* r) { r->mutable_inputs(1)->mutable_contents()->add_fp32_contents(1); }},
      {"value", [](auto* r) { r->mutable_raw_input_contents()->RemoveLast(); }},
      {"raw_input_contents", [](auto* r) { r->add_raw_input_contents("more"); }},
      {"strange", [](auto* r) { r->mutable_inputs(2)->set_name("strange"); }},
      {"strange", [](auto* r) { r->add_outputs()->set_name("strange"); }},
      {"clusters", [](auto* r) { (*r->mutable_parameters())["clusters"].set_int64_param(3); }},
      {"attention", [](auto* r) { (*r->mutable_parameters())["attention"].set_int64_param(1); }},
      {"timeout", [](auto* r) { (*r->mutable_parameters())["timeout"].set_int64_param(-1); }},
      {"model_version", [](auto* r) { r->set_model_version("-1"); }},
  };
  for (const Case& bad : cases) {
    ModelInferRequest request = Attention(5);
    bad.spoil(&request);
    ModelInferResponse response;
    const grpc::Status status = Infer(request, &response);
    EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT) << bad.named;
    EXPECT_NE(status.error_message().find(bad.named), std::string::npos) << status.error_message();
  }
  ModelInferRequest request = Attention(5);
  request.set_model_name("strange");
  ModelInferResponse response;
  EXPECT_EQ(Infer(request, &response).error_code(), grpc::NOT_FOUND);
  request = Attention(5);
  request.set_model_version("2");
  EXPECT_EQ(Infer(request, &response).error_code(), grpc::NOT_FOUND);
}

TEST_F(OipTest, NoModelStandsInAttentionsPlace) {
  server::ServerOptions options = TestOptions();
  options.engine.device = "cpu";
  options.engine.models = {{"castor_attention", CASTOR_TINY_MODEL}};
  const auto refused = server::Server::Create(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("castor_attention"), absl::string_view::npos);
  EXPECT_NE(refused.status().message().find("--protocols"), absl::string_view::npos);
  options.protocols.oip = false;
  options.engine.cost_model_budget = std::chrono::milliseconds(0);
  EXPECT_TRUE(server::Server::Create(options).ok());
}

TEST_F(OipTest, ConfigurationAndMetadataAgreeForEveryModel) {
  grpc::ClientContext index_context;
  inference::RepositoryIndexResponse index;
  ASSERT_TRUE(stub_->RepositoryIndex(&index_context, {}, &index).ok());
  ASSERT_GT(index.models_size(), 0);
  for (const auto& model : index.models()) {
    grpc::ClientContext contexts[2];
    inference::ModelMetadataRequest about;
    about.set_name(model.name());
    inference::ModelMetadataResponse metadata;
    ASSERT_TRUE(stub_->ModelMetadata(&contexts[0], about, &metadata).ok());
    inference::ModelConfigRequest asked;
    asked.set_name(model.name());
    inference::ModelConfigResponse config;
    ASSERT_TRUE(stub_->ModelConfig(&contexts[1], asked, &config).ok());
    ASSERT_EQ(config.config().input_size(), metadata.inputs_size());
    for (int i = 0; i < metadata.inputs_size(); ++i) {
      EXPECT_EQ(config.config().input(i).name(), metadata.inputs(i).name());
      EXPECT_NE(config.config().input(i).data_type(), inference::TYPE_INVALID);
    }
    EXPECT_EQ(config.config().output_size(), metadata.outputs_size());
  }
}

TEST_F(OipTest, TextsAreLengthPrefixedBytes) {
  ModelInferRequest request;
  request.set_model_name("tiny");
  auto* const text = request.add_inputs();
  text->set_name("text");
  text->set_datatype("BYTES");
  for (const int64_t size : {2, 1}) text->add_shape(size);
  const std::string element("\3\0\0\0cat", 7);
  request.add_raw_input_contents(element + element);
  ModelInferResponse response;
  const grpc::Status status = Infer(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.outputs(0).shape(0), 2);
  for (const std::string& bytes : {element, element + element.substr(0, 6), element + "abc",
                                   element + std::string("\3\0\0\0\xff\xff\xff", 7)}) {
    request.set_raw_input_contents(0, bytes);
    const grpc::Status bad = Infer(request, &response);
    EXPECT_EQ(bad.error_code(), grpc::INVALID_ARGUMENT);
    EXPECT_EQ(DetailsOf(bad).bad_request.field_violations(0).field(), "text");
  }
}

TEST_F(OipTest, StatisticsCountWhatWasAnsweredAndWhatWasNot) {
  ModelInferResponse response;
  ASSERT_TRUE(Infer(Attention(3), &response).ok());
  ModelInferRequest bad = Attention(3);
  bad.mutable_inputs(0)->set_datatype("FP8");
  EXPECT_FALSE(Infer(bad, &response).ok());
  grpc::ClientContext context;
  inference::ModelStatisticsRequest request;
  request.set_name("castor_attention");
  inference::ModelStatisticsResponse answer;
  ASSERT_TRUE(stub_->ModelStatistics(&context, request, &answer).ok());
  ASSERT_EQ(answer.model_stats_size(), 1);
  const inference::ModelStatistics& stats = answer.model_stats(0);
  EXPECT_EQ(stats.inference_count(), 1u);
  EXPECT_EQ(stats.execution_count(), 1u);
  EXPECT_EQ(stats.inference_stats().success().count(), 1u);
  EXPECT_EQ(stats.inference_stats().fail().count(), 1u);
  EXPECT_EQ(stats.inference_stats().queue().count(), 1u);
  EXPECT_EQ(stats.inference_stats().compute_input().count(), 1u);
}

// ModelStreamInfer: answers and errors on one stream, and how it ends.

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
