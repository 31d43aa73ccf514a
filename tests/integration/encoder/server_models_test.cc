// Models that are loaded, replaced and unloaded while the server runs, by each of its protocols.

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "castor/v1/model.grpc.pb.h"
#include "inference/grpc_service.grpc.pb.h"
#include "tests/integration/observed/health_client.h"
#include "tests/integration/server_fixture.h"
#include "tests/support/temporary_folder.h"

namespace castor::testing {
namespace {

using grpc::health::v1::HealthCheckResponse;

constexpr char kDirectories[] = CASTOR_GOLDEN_ENCODER "/directories/";

class ServerModelsTest : public ServerTest {
 protected:
  void StartWith(ModelControl control, std::vector<ModelSource> models = {}) {
    Put("embed", "bert-embed");
    Put("other", "roberta-embed");
    Put("rank", "bert-cross");
    EngineOptions options;
    options.catalog = {.control = control, .root = root_.path()};
    StartReal(std::move(models), TestOptions(), options);
    models_ = v1::ModelService::NewStub(channel_);
    oip_ = inference::GRPCInferenceService::NewStub(channel_);
  }
  void Put(const std::string& name, const std::string& directory) {
    std::filesystem::remove(root_ / name);
    std::filesystem::create_directory_symlink(kDirectories + directory, root_ / name);
  }

  grpc::Status Load(const std::string& name, const std::string& directory = "",
                    bool replace = false) {
    grpc::ClientContext context;
    v1::LoadModelRequest request;
    request.set_name(name);
    request.set_directory(directory);
    request.set_replace(replace);
    v1::Model model;
    grpc::Status status = models_->LoadModel(&context, request, &model);
    EXPECT_TRUE(!status.ok() || model.name() == name) << model.name();
    return status;
  }
  grpc::Status Unload(const std::string& name) {
    grpc::ClientContext context;
    v1::UnloadModelRequest request;
    request.set_name(name);
    v1::UnloadModelResponse response;
    return models_->UnloadModel(&context, request, &response);
  }
  std::vector<std::string> States() {
    grpc::ClientContext context;
    v1::ListModelsRequest request;
    request.set_all(true);
    v1::ListModelsResponse response;
    EXPECT_TRUE(models_->ListModels(&context, request, &response).ok());
    std::vector<std::string> states;
    for (const v1::Model& model : response.models()) {
      states.push_back(model.name() + " " + v1::ModelState_Name(model.state()));
    }
    return states;
  }
  static v1::EncodeRequest To(const std::string& model) {
    v1::EncodeRequest request = EncodeOf({"a beaver builds a dam"});
    request.set_model(model);
    return request;
  }
  std::string VectorOf(const std::string& model) { return Encode(To(model)).output().raw(); }

  const TemporaryFolder root_;
  std::unique_ptr<v1::ModelService::Stub> models_;
  std::unique_ptr<inference::GRPCInferenceService::Stub> oip_;
};

TEST_F(ServerModelsTest, AModelIsLoadedServedReplacedAndUnloaded) {
  StartWith(ModelControl::kExplicit);
  EXPECT_EQ(States(),
            (std::vector<std::string>{"embed UNLOADED", "other UNLOADED", "rank UNLOADED"}));
  EXPECT_EQ(Outcome(Try(To("embed"))), "NOT_FOUND MODEL_NOT_FOUND");
  ASSERT_TRUE(Load("embed").ok());
  const std::string first = VectorOf("embed");
  EXPECT_TRUE(
      Await([&] { return CheckHealth(channel_, "model/embed") == HealthCheckResponse::SERVING; }));
  EXPECT_EQ(Outcome(Load("embed", "other")), "INVALID_ARGUMENT INVALID_FIELD directory");
  ASSERT_TRUE(Load("embed", "other", true).ok());
  const std::string second = VectorOf("embed");
  EXPECT_NE(second, first);
  EXPECT_EQ(States()[0], "embed READY");
  ASSERT_TRUE(Unload("embed").ok());
  EXPECT_EQ(Outcome(Try(To("embed"))), "NOT_FOUND MODEL_NOT_FOUND");
  EXPECT_TRUE(Await(
      [&] { return CheckHealth(channel_, "model/embed") == HealthCheckResponse::NOT_SERVING; }));
  EXPECT_EQ(Outcome(Load("../embed")), "INVALID_ARGUMENT INVALID_FIELD name");
  EXPECT_EQ(Outcome(Load("embed", "../embed")), "NOT_FOUND MODEL_NOT_FOUND");
}

TEST_F(ServerModelsTest, ADirectoryThatCannotBeServedSaysWhy) {
  StartWith(ModelControl::kAuto);
  std::filesystem::create_directory(root_ / "broken");
  std::filesystem::copy(std::string(kDirectories) + "bert-embed/config.json", root_ / "broken");
  const grpc::Status failed = Load("broken");
  EXPECT_EQ(Outcome(failed), "FAILED_PRECONDITION MODEL_FAILED");
  EXPECT_NE(failed.error_message().find("broken"), std::string::npos) << failed.error_message();
  EXPECT_EQ(States()[0], "broken FAILED");
  const grpc::Status refused = Try(To("broken"));
  EXPECT_EQ(Outcome(refused), "FAILED_PRECONDITION MODEL_FAILED");
  EXPECT_TRUE(DetailsOf(refused).retry.has_value());
}

TEST_F(ServerModelsTest, TheFirstRequestLoadsItsModelByEveryDoor) {
  StartWith(ModelControl::kAuto);
  EXPECT_EQ(Outcome(Try(To("strange"))), "NOT_FOUND MODEL_NOT_FOUND");
  EXPECT_FALSE(VectorOf("embed").empty());

  v1::RerankRequest rerank;
  rerank.set_model("rank");
  rerank.set_query("beavers");
  rerank.add_documents("a beaver builds a dam");
  EXPECT_EQ(Rerank(rerank).results_size(), 1);

  inference::ModelInferRequest infer;
  infer.set_model_name("other");
  auto* const input = infer.add_inputs();
  input->set_name("text");
  input->set_datatype("BYTES");
  input->add_shape(1);
  input->add_shape(1);
  input->mutable_contents()->add_bytes_contents("a beaver builds a dam");
  inference::ModelInferResponse inferred;
  grpc::ClientContext infer_context;
  const grpc::Status status = oip_->ModelInfer(&infer_context, infer, &inferred);
  ASSERT_TRUE(status.ok()) << Outcome(status) << status.error_message();
  EXPECT_EQ(States(), (std::vector<std::string>{"embed READY", "other READY", "rank READY"}));

  // A client may ask about a model before it uses it.
  ASSERT_TRUE(Unload("embed").ok());
  EXPECT_GT(DescribeModel("embed").hidden_size(), 0);
}

TEST_F(ServerModelsTest, ARequestWhoseDeadlineIsTooSoonIsToldWhenToReturn) {
  StartWith(ModelControl::kAuto);
  v1::EncodeRequest request = To("embed");
  request.set_timeout_ms(40);  // less than any load is expected to take
  const grpc::Status status = Try(request);
  EXPECT_EQ(Outcome(status), "UNAVAILABLE MODEL_LOADING");
  EXPECT_TRUE(DetailsOf(status).retry.has_value());
  EXPECT_TRUE(Await([&] { return States()[0] == "embed READY"; })) << "it is loaded all the same";
}

TEST_F(ServerModelsTest, TritonsClientsLoadAndUnload) {
  StartWith(ModelControl::kExplicit, {{"pinned", std::string(kDirectories) + "bert-embed"}});
  const auto load = [&](inference::RepositoryModelLoadRequest request) {
    grpc::ClientContext context;
    inference::RepositoryModelLoadResponse response;
    return oip_->RepositoryModelLoad(&context, request, &response);
  };
  inference::RepositoryModelLoadRequest request;
  request.set_model_name("embed");
  EXPECT_TRUE(load(request).ok());
  EXPECT_TRUE(load(request).ok()) << "again";
  (*request.mutable_parameters())["config"].set_string_param("{}");
  EXPECT_EQ(Outcome(load(request)), "INVALID_ARGUMENT INVALID_FIELD parameters");
  request.Clear();
  request.set_repository_name("other");  // as KServe's clients number the fields
  EXPECT_TRUE(load(request).ok());
  request.set_model_name("pinned");
  EXPECT_EQ(Outcome(load(request)), "FAILED_PRECONDITION MODEL_CONTROL_OFF");
  grpc::ClientContext unload_context, index_context;
  inference::RepositoryModelUnloadRequest unload;
  unload.set_model_name("embed");
  inference::RepositoryModelUnloadResponse unloaded;
  EXPECT_TRUE(oip_->RepositoryModelUnload(&unload_context, unload, &unloaded).ok());
  inference::RepositoryIndexResponse index;
  ASSERT_TRUE(oip_->RepositoryIndex(&index_context, {}, &index).ok());
  std::vector<std::string> states;
  for (const auto& model : index.models()) states.push_back(model.name() + " " + model.state());
  EXPECT_EQ(states, (std::vector<std::string>{"castor_attention READY", "embed UNAVAILABLE",
                                              "other READY", "pinned READY", "rank UNAVAILABLE"}));
}

// Requests that wait for a model are answered by a drain.
TEST_F(ServerModelsTest, ADrainRefusesWhatWaitsForAModel) {
  StartWith(ModelControl::kAuto);
  std::vector<std::future<grpc::Status>> calls;
  for (int i = 0; i < 8; ++i) {
    calls.push_back(std::async(std::launch::async,
                               [this, i] { return Try(To(i % 2 == 0 ? "embed" : "other")); }));
  }
  EXPECT_TRUE(
      Await([&] { return server_->calls_in_flight() > 0 || States()[0] != "embed UNLOADED"; }));
  server_->Drain();
  for (auto& call : calls) {
    const grpc::Status status = call.get();
    EXPECT_TRUE(status.ok() || status.error_code() == grpc::UNAVAILABLE) << Outcome(status);
  }
}

}  // namespace
}  // namespace castor::testing
