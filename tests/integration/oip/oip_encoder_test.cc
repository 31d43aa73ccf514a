// Encoders and rerankers by the Open Inference Protocol, with NIM's names, and shared memory.
#include "engine/base/error.h"
#include "tests/integration/oip/oip_fixture.h"
#include "tests/support/shared_object.h"

namespace castor::testing {
namespace {

class OipEncoderTest : public OipTest {
 protected:
  grpc::Status Register(const std::string& name, const std::string& key, int64_t size) {
    inference::SystemSharedMemoryRegisterRequest request;
    request.set_name(name);
    request.set_key(key);
    request.set_byte_size(static_cast<uint64_t>(size));
    inference::SystemSharedMemoryRegisterResponse response;
    grpc::ClientContext context;
    return stub_->SystemSharedMemoryRegister(&context, request, &response);
  }

  template <typename Tensor>
  static void PutIn(const std::string& region, int64_t offset, int64_t size, Tensor* tensor) {
    auto& parameters = *tensor->mutable_parameters();
    parameters["shared_memory_region"].set_string_param(region);
    parameters["shared_memory_offset"].set_int64_param(offset);
    parameters["shared_memory_byte_size"].set_int64_param(size);
  }
};

TEST_F(OipEncoderTest, OneAnswerHasOutputsOfSeveralKinds) {
  ModelInferRequest request = Texts({"cat", "a dog"});
  for (const char* name : {"lengths", "token_embeddings", "embeddings"}) {
    request.add_outputs()->set_name(name);
  }
  ModelInferResponse both;
  const grpc::Status status = Infer(request, &both);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(both.outputs_size(), 3);
  EXPECT_EQ(both.outputs(1).name(), "token_embeddings");
  const auto lengths = ValuesOf<int64_t>(both, "lengths");
  EXPECT_EQ(lengths[0] + lengths[1], both.outputs(1).shape(0));
  ModelInferResponse alone;
  ASSERT_TRUE(Infer(Texts({"cat", "a dog"}), &alone).ok());
  EXPECT_EQ(ValuesOf<float>(both, "embeddings"), ValuesOf<float>(alone, "embeddings"));
}

TEST_F(OipEncoderTest, EmbeddingTypesAreNims) {
  const std::pair<const char*, const char*> kTypes[] = {{"float", "FP32"},
                                                        {"binary", "INT8"},
                                                        {"ubinary", "UINT8"},
                                                        {"int8", "INT8"},
                                                        {"uint8", "UINT8"}};
  for (const auto& [type, datatype] : kTypes) {
    ModelInferRequest request = Texts({"cat", "a dog"});
    (*request.mutable_parameters())["embedding_type"].set_string_param(type);
    ModelInferResponse response;
    const grpc::Status status = Infer(request, &response);
    ASSERT_TRUE(status.ok()) << type << ": " << status.error_message();
    EXPECT_EQ(response.outputs(0).datatype(), datatype) << type;
  }
  ModelInferRequest request = Texts({"cat"});
  (*request.mutable_parameters())["embedding_type"].set_string_param("int4");
  ModelInferResponse response;
  const grpc::Status status = Infer(request, &response);
  EXPECT_EQ(DetailsOf(status).bad_request.field_violations(0).field(), "parameters.embedding_type");
}

TEST_F(OipEncoderTest, ARerankerSortsItsPassages) {
  ModelInferRequest request;
  request.set_model_name("cross_encoder");  // the alias
  AddTexts("query", {"who builds a dam?"}, &request);
  AddTexts("passages", {"a beaver", "", "interest rates", "a beaver"}, &request);
  request.add_outputs()->set_name("index");
  request.add_outputs()->set_name("logit");
  request.add_outputs()->set_name("logits");
  ModelInferResponse response;
  const grpc::Status status = Infer(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.model_name(), "Cross-Encoder");
  const auto index = ValuesOf<int32_t>(response, "index");
  const auto logit = ValuesOf<float>(response, "logit");
  const auto logits = ValuesOf<float>(response, "logits");
  ASSERT_EQ(index.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(logit[i], logits[static_cast<size_t>(index[i])]);
    if (i > 0) {
      EXPECT_LE(logit[i], logit[i - 1]);
    }
  }
}

TEST_F(OipEncoderTest, SparseRowsAreThreeTensors) {
  ModelInferRequest request = Texts({"cat"});
  request.set_model_name("splade");
  ModelInferResponse response;
  const grpc::Status status = Infer(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const auto indices = ValuesOf<int32_t>(response, "sparse_indices");
  EXPECT_EQ(indices.size(), ValuesOf<float>(response, "sparse_values").size());
  EXPECT_EQ(ValuesOf<int64_t>(response, "sparse_lengths"),
            std::vector<int64_t>{std::ssize(indices)});
}

TEST_F(OipEncoderTest, ErrorsNameTheProtocolsInputs) {
  const auto field_of = [&](const ModelInferRequest& request) {
    ModelInferResponse response;
    const grpc::Status status = Infer(request, &response);
    EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
    const auto details = DetailsOf(status);
    return details.bad_request.field_violations_size() == 0
               ? "none"
               : details.bad_request.field_violations(0).field();
  };
  ModelInferRequest ids;
  ids.set_model_name("tiny");
  auto* const input = ids.add_inputs();
  input->set_name("input_ids");
  input->set_datatype("INT64");
  input->add_shape(1);
  input->mutable_contents()->add_int64_contents(int64_t{1} << 40);
  EXPECT_EQ(field_of(ids), "input_ids[0]");
  ModelInferRequest both = Texts({"cat"});
  *both.add_inputs() = ids.inputs(0);
  both.mutable_inputs(1)->clear_contents();
  both.add_raw_input_contents(std::string(8, '\0'));
  EXPECT_EQ(field_of(both), "text");
  ModelInferRequest none;
  none.set_model_name("tiny");
  EXPECT_EQ(field_of(none), "text");
  ModelInferRequest uneven;
  uneven.set_model_name("Cross-Encoder");
  AddTexts("query", {"a", "b"}, &uneven);
  AddTexts("passage", {"a", "b", "c"}, &uneven);
  EXPECT_EQ(field_of(uneven), "passage");
  ModelInferRequest rank = Texts({"cat"});
  rank.set_model_name("Cross-Encoder");
  EXPECT_EQ(field_of(rank), "text");
}

TEST_F(OipEncoderTest, TextsAndEmbeddingsCanBeInSharedMemory) {
  ModelInferRequest request = Texts({"cat", "a dog"});
  ModelInferResponse in_message;
  ASSERT_TRUE(Infer(request, &in_message).ok());
  const std::string embeddings = in_message.raw_output_contents(0);
  const std::string texts = request.raw_input_contents(0);
  const auto size = std::ssize(texts);

  SharedObject object(1 << 16);
  ASSERT_TRUE(Register("mine", object.key().substr(1), 1 << 16).ok());  // without its slash
  EXPECT_EQ(Register("mine", object.key(), 1 << 16).error_code(), grpc::ALREADY_EXISTS);
  object.Write(64, texts);
  request.clear_raw_input_contents();
  PutIn("mine", 64, size, request.mutable_inputs(0));
  auto* const output = request.add_outputs();
  output->set_name("embeddings");
  PutIn("mine", 4096, 8192, output);
  request.add_outputs()->set_name("token_count");
  ModelInferResponse response;
  const grpc::Status status = Infer(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.raw_output_contents_size(), 2);
  EXPECT_EQ(response.raw_output_contents(0), "");
  EXPECT_EQ(response.raw_output_contents(1), in_message.raw_output_contents(1));
  EXPECT_EQ(object.Read(4096, std::ssize(embeddings)), embeddings);

  PutIn("mine", 4096, std::ssize(embeddings) - 1, output);
  EXPECT_EQ(DetailsOf(Infer(request, &response)).bad_request.field_violations(0).field(),
            "embeddings");
  PutIn("mine", (1 << 16) - 4, 8, output);
  EXPECT_EQ(Infer(request, &response).error_code(), grpc::INVALID_ARGUMENT);
  PutIn("yours", 0, 8, output);
  EXPECT_EQ(Infer(request, &response).error_code(), grpc::NOT_FOUND);
  request.clear_outputs();
  for (const int64_t wrong : {size - 1, size + 1, int64_t{-1}, INT64_MAX}) {
    PutIn("mine", 64, wrong, request.mutable_inputs(0));
    EXPECT_EQ(Infer(request, &response).error_code(), grpc::INVALID_ARGUMENT) << wrong;
  }
  PutIn("mine", 64, size, request.mutable_inputs(0));
  object.Cut(32);
  EXPECT_EQ(Infer(request, &response).error_code(), grpc::INVALID_ARGUMENT);
}

TEST_F(OipEncoderTest, IdsInSharedMemoryAreThoseOfTheMessage) {
  ModelInferRequest request;
  request.set_model_name("tiny");
  auto* const ids = request.add_inputs();
  ids->set_name("input_ids");
  ids->set_datatype("INT32");
  ids->add_shape(3);
  const int32_t values[] = {2, 5, 3};
  const std::string bytes(reinterpret_cast<const char*>(values), sizeof(values));
  request.add_raw_input_contents(bytes);
  ModelInferResponse in_message;
  ASSERT_TRUE(Infer(request, &in_message).ok());
  SharedObject object(4096);
  ASSERT_TRUE(Register("ids", object.key(), 4096).ok());
  object.Write(0, bytes);
  request.clear_raw_input_contents();
  PutIn("ids", 0, std::ssize(bytes), ids);
  ModelInferResponse response;
  ASSERT_TRUE(Infer(request, &response).ok());
  EXPECT_EQ(response.raw_output_contents(0), in_message.raw_output_contents(0));
}

}  // namespace
}  // namespace castor::testing
