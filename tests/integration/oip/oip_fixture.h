// A server over the real engine, with an encoder, a reranker and a sparse model, for clients of the
// Open Inference Protocol.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "inference/grpc_service.grpc.pb.h"
#include "tests/integration/server_fixture.h"

namespace castor::testing {

using inference::ModelInferRequest;
using inference::ModelInferResponse;

class OipTest : public ServerTest {
 protected:
  void SetUp() override {
    server::ServerOptions options = TestOptions();
    options.shared_memory = true;
    StartReal({{"tiny", CASTOR_TINY_MODEL},
               {"Cross-Encoder", CASTOR_HEADS "/cross_encoder"},
               {"splade", CASTOR_HEADS "/splade_bert"}},
              options);
    stub_ = inference::GRPCInferenceService::NewStub(channel_);
  }

  grpc::Status Infer(const ModelInferRequest& request, ModelInferResponse* response) {
    grpc::ClientContext context;
    return stub_->ModelInfer(&context, request, response);
  }

  // Three equal tensors of tokens x 2 x 8.
  static ModelInferRequest Attention(int tokens) {
    ModelInferRequest request;
    request.set_model_name("castor_attention");
    request.set_id("mine");
    for (const char* name : {"query", "key", "value"}) {
      auto* const input = request.add_inputs();
      input->set_name(name);
      input->set_datatype("FP32");
      for (const int64_t size : {tokens, 2, 8}) input->add_shape(size);
      std::vector<float> values(static_cast<size_t>(tokens) * 16);
      for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
      request.add_raw_input_contents(values.data(), values.size() * sizeof(float));
    }
    return request;
  }

  // Texts as BYTES.
  static void AddTexts(const std::string& name, const std::vector<std::string>& texts,
                       ModelInferRequest* request) {
    auto* const input = request->add_inputs();
    input->set_name(name);
    input->set_datatype("BYTES");
    input->add_shape(static_cast<int64_t>(texts.size()));
    input->add_shape(1);
    std::string bytes;
    for (const std::string& text : texts) {
      const auto size = static_cast<uint32_t>(text.size());
      bytes.append(reinterpret_cast<const char*>(&size), sizeof(size)).append(text);
    }
    request->add_raw_input_contents(bytes);
  }
  static ModelInferRequest Texts(const std::vector<std::string>& texts) {
    ModelInferRequest request;
    request.set_model_name("tiny");
    AddTexts("text", texts, &request);
    return request;
  }

  template <typename T>
  static std::vector<T> ValuesOf(const ModelInferResponse& response, const std::string& output) {
    for (int i = 0; i < response.outputs_size(); ++i) {
      if (response.outputs(i).name() != output) continue;
      const std::string& bytes = response.raw_output_contents(i);
      std::vector<T> values(bytes.size() / sizeof(T));
      std::memcpy(values.data(), bytes.data(), bytes.size());
      return values;
    }
    ADD_FAILURE() << "no output " << output;
    return {};
  }

  std::unique_ptr<inference::GRPCInferenceService::Stub> stub_;
};

}  // namespace castor::testing
