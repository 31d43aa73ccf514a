// An answer counts in the engine's budget of bytes until its caller has taken it: the answers of
// all protocols, to callers that let the server send nothing.

#include <grpcpp/generic/generic_stub.h>

#include <cstdlib>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "castor/v1/encoder.pb.h"
#include "inference/grpc_service.pb.h"
#include "tei/v1/tei.pb.h"
#include "tests/integration/golden_models.h"
#include "tests/integration/raw_client.h"
#include "tests/integration/server_fixture.h"

namespace castor::testing {
namespace {

namespace tei = ::tei::v1;

constexpr char kText[] = "who builds a dam but a beaver?";
constexpr int kTexts = 200;

class ServerAnswersTest : public ServerTest {
 protected:
  void SetUp() override {
    StartReal(GoldenModels({"bert_tokens", "bert_sequences", "cross_encoder", "splade_bert",
                            "dense", "colbert_pylate"},
                           "heads/"));
  }

  int64_t Held() const { return server_->engine().stats().load.inflight_bytes; }

  // The bytes of the answer to a caller that takes it.
  int64_t SizeOf(const std::string& path, const std::string& message, const std::string& model) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    context.AddMetadata("castor-model", model);
    const grpc::Slice slice(message);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    std::promise<grpc::Status> done;
    stub.UnaryCall(&context, path, grpc::StubOptions(), &request, &response,
                   [&](grpc::Status status) { done.set_value(std::move(status)); });
    const grpc::Status status = done.get_future().get();
    EXPECT_TRUE(status.ok()) << path << ": " << status.error_message();
    return static_cast<int64_t>(response.Length());
  }

  // `path` and its stream, if there is one. `model` is for protocols that have it in the metadata.
  void ExpectHeld(const std::string& path, const std::string& stream,
                  const google::protobuf::Message& request, const std::string& model = "") {
    SCOPED_TRACE(path + " " + model);
    const std::string message = request.SerializeAsString();
    ASSERT_LT(message.size(), size_t{16} << 10) << "must be one frame";
    const int64_t size = SizeOf(path, message, model);
    ASSERT_TRUE(AwaitNoBytes());
    for (const std::string& method : {path, stream}) {
      if (method.empty()) continue;
      constexpr int64_t kOfTimes = 64;  // numbers that are not the same each time
      RawClient deaf(server_->port());
      ASSERT_TRUE(deaf.SendPrefaceOfADeafPeer() &&
                  deaf.Send(RawClient::HeadersOf(1, method, {"castor-model", model})) &&
                  deaf.Send(RawClient::MessageOf(1, message, static_cast<uint32_t>(message.size()),
                                                 /*last=*/false)));
      EXPECT_TRUE(Await([&] {
        return server_->engine().stats().load.inflight_requests == 0 &&
               std::abs(Held() - size) <= kOfTimes;
      })) << method
          << " holds " << Held() << " bytes of an answer of " << size;
      deaf.Vanish();
      EXPECT_TRUE(AwaitNoBytes()) << method;
    }
  }
};

TEST_F(ServerAnswersTest, CastorsCountUntilTheyAreTaken) {
  const std::string service = "/castor.v1.EncoderService/";
  for (const auto& [model, output] : {std::pair{"splade_bert", v1::SPARSE},
                                      {"bert_sequences", v1::LOGITS},
                                      {"bert_tokens", v1::SCORES},
                                      {"dense", v1::POOLED},
                                      {"colbert_pylate", v1::TOKEN_EMBEDDINGS}}) {
    v1::EncodeRequest request;
    request.set_model(model);
    request.set_output(output);
    for (int i = 0; i < kTexts; ++i) request.mutable_texts()->add_texts(kText);
    ExpectHeld(service + "Encode", service + "EncodeStream", request);
    if (output != v1::SPARSE) continue;
    request.clear_output();
    request.add_outputs(v1::POOLED);
    request.add_outputs(v1::SPARSE);
    ExpectHeld(service + "Encode", service + "EncodeStream", request);
  }
  for (const char* model : {"cross_encoder", "colbert_pylate"}) {
    v1::RerankRequest request;
    request.set_model(model);
    request.set_query(kText);
    request.set_return_documents(true);
    for (int i = 0; i < kTexts; ++i) request.add_documents(kText);
    ExpectHeld(service + "Rerank", "", request);
  }
  v1::TokenizeRequest tokenize;
  tokenize.set_model("dense");
  tokenize.set_return_tokens(true);
  for (int i = 0; i < kTexts; ++i) tokenize.mutable_texts()->add_texts(kText);
  ExpectHeld(service + "Tokenize", "", tokenize);
  v1::DetokenizeRequest detokenize;
  detokenize.set_model("dense");
  for (int i = 0; i < 10 * kTexts; ++i) detokenize.mutable_tokens()->add_ids(i % 30);
  ExpectHeld(service + "Detokenize", "", detokenize);
  detokenize.mutable_tokens()->clear_ids();  // texts of nothing: all of it is in the lengths
  for (int i = 0; i < kTexts; ++i) detokenize.mutable_tokens()->add_lengths(0);
  ExpectHeld(service + "Detokenize", "", detokenize);
}

TEST_F(ServerAnswersTest, ThoseOfTheOpenInferenceProtocolCountUntilTheyAreTaken) {
  const std::string service = "/inference.GRPCInferenceService/";
  for (const char* model : {"splade_bert", "bert_sequences", "bert_tokens", "dense",
                            "colbert_pylate", "cross_encoder"}) {
    inference::ModelInferRequest request;
    request.set_model_name(model);
    const bool reranks = std::string(model) == "cross_encoder";
    const auto add = [&](const char* name, int count) {
      auto* const input = request.add_inputs();
      input->set_name(name);
      input->set_datatype("BYTES");
      input->add_shape(count);
      input->add_shape(1);
      for (int i = 0; i < count; ++i) input->mutable_contents()->add_bytes_contents(kText);
    };
    add(reranks ? "query" : "text", reranks ? 1 : kTexts);
    if (reranks) add("passage", kTexts);
    ExpectHeld(service + "ModelInfer", service + "ModelStreamInfer", request);
  }
}

TEST_F(ServerAnswersTest, TeisCountUntilTheyAreTaken) {
  std::string text;
  for (int i = 0; i < kTexts; ++i) text += kText;
  const auto ask = [&](auto request, const std::string& path, const char* model) {
    request.set_inputs(text);
    if constexpr (requires { request.set_truncate(true); }) request.set_truncate(true);
    ExpectHeld("/tei.v1." + path, "/tei.v1." + path + "Stream", request, model);
  };
  ask(tei::EmbedRequest(), "Embed/Embed", "dense");
  ask(tei::EmbedSparseRequest(), "Embed/EmbedSparse", "splade_bert");
  ask(tei::EmbedAllRequest(), "Embed/EmbedAll", "colbert_pylate");
  ask(tei::PredictRequest(), "Predict/Predict", "bert_sequences");
  ask(tei::EncodeRequest(), "Tokenize/Tokenize", "dense");
  tei::RerankRequest rerank;
  rerank.set_query(kText);
  rerank.set_return_text(true);
  rerank.set_truncate(true);
  for (int i = 0; i < kTexts; ++i) rerank.add_texts(kText);
  ExpectHeld("/tei.v1.Rerank/Rerank", "", rerank, "cross_encoder");
}

}  // namespace
}  // namespace castor::testing
