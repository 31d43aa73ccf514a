// Calls every kind of method with each of the allocations that the server makes for the call
// failing in turn: that one alone, or also all later ones. Each call must end, with its answer or
// OUT_OF_MEMORY, and leave nothing behind; the server must live.
//
// The server is a process of its own, forked before gRPC starts any thread. Only its own
// allocations fail: gRPC, Asio and nlohmann::json, which writes answers other than vectors, abort
// without memory, and what the engine does then is engine_memory_test's.
#include <dlfcn.h>
#include <execinfo.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/sync_stream.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <new>
#include <ostream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"
#include "castor/v1/model.pb.h"
#include "castor/v1/shared_memory.pb.h"
#include "grpc/health/v1/health.pb.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "inference/grpc_service.pb.h"
#include "server/server.h"
#include "tei/v1/tei.pb.h"
#include "tests/integration/server_fixture.h"
#include "tests/unit/server/http_client.h"

namespace castor::testing {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// Shared by the two processes.
struct Control {
  std::atomic<int64_t> left = kNever;  // allocations until one fails
  std::atomic<bool> for_good = false;  // all later ones fail too
  std::atomic<bool> failed = false;
  std::atomic<int> port = 0;
  std::atomic<int> metrics_port = 0;
  std::atomic<int> http_port = 0;
  std::atomic<int64_t> calls_in_flight = 0;
  std::atomic<int64_t> looks = 0;  // at that
};
Control* control = nullptr;
bool in_server = false;

enum class Owner : char { kUnknown, kTransport, kServer, kOther };

// Whose code an address in it is: that of the library, or of the function's namespace. Functions
// without an exported name and templates of libraries are their callers'.
Owner OwnerOf(void* address) {
  static char here;
  Dl_info about{}, own{};
  if (dladdr(address, &about) == 0) return Owner::kUnknown;
  dladdr(&here, &own);
  if (about.dli_fbase != own.dli_fbase) {
    const std::string_view file = about.dli_fname;
    if (file.find("libgrpc") != file.npos || file.find("libgpr") != file.npos)
      return Owner::kTransport;
    return file.find("libcastor_engine") != file.npos ? Owner::kOther : Owner::kUnknown;
  }
  if (about.dli_sname == nullptr) return Owner::kUnknown;
  std::string_view name = about.dli_sname;
  name.remove_prefix(name.find_first_of("0123456789") == name.npos
                         ? name.size()
                         : name.find_first_of("0123456789"));
  if (name.starts_with("4grpc") || name.starts_with("5boost")) return Owner::kTransport;
  if (name.starts_with("6castor6server")) return Owner::kServer;
  return name.starts_with("6castor") ? Owner::kOther : Owner::kUnknown;
}

// The same, remembered, without allocating.
Owner CachedOwnerOf(void* address) {
  struct Entry {
    std::atomic<void*> address = nullptr;
    std::atomic<Owner> owner = Owner::kUnknown;
  };
  static std::array<Entry, 1 << 16> entries;
  size_t at = (reinterpret_cast<uintptr_t>(address) * 0x9E3779B97F4A7C15U) >> 48;
  for (size_t i = 0; i < 64; ++i, at = (at + 1) % entries.size()) {
    void* const there = entries[at].address.load(std::memory_order_acquire);
    if (there == address) return entries[at].owner.load(std::memory_order_relaxed);
    if (there != nullptr) continue;
    const Owner owner = OwnerOf(address);
    entries[at].owner.store(owner, std::memory_order_relaxed);
    entries[at].address.store(address, std::memory_order_release);
    return owner;
  }
  return OwnerOf(address);
}

// Whether the server's own code allocates, on a thread that serves calls. A new connection needs
// memory of gRPC too, so the acceptor's does not count.
bool IsTheServers() {
  thread_local const bool serves_no_call = [] {
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof(name));
    return std::strcmp(name, "periodic") == 0 || std::strcmp(name, "acceptor") == 0;
  }();
  if (serves_no_call) return false;
  Owner owner = Owner::kUnknown;
  _Unwind_Backtrace(
      [](_Unwind_Context* frame, void* found) {
        auto& of = *static_cast<Owner*>(found);
        of = CachedOwnerOf(reinterpret_cast<void*>(_Unwind_GetIP(frame) - 1));
        return of == Owner::kUnknown ? _URC_NO_REASON : _URC_END_OF_STACK;
      },
      &owner);
  return owner == Owner::kServer;
}

bool MustFail() {
  if (!in_server || control->left.load(std::memory_order_relaxed) == kNever || !IsTheServers()) {
    return false;
  }
  const int64_t before = control->left.fetch_sub(1);
  if (before > 0 || (before < 0 && !control->for_good)) return false;
  control->failed = true;
  return true;
}

// ---- The server

const std::string kGolden = CASTOR_GOLDEN_ENCODER;

[[noreturn]] void Serve() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::set_terminate([] {
    void* frames[64];
    backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
    std::abort();
  });
  server::ServerOptions options = TestOptionsWithMetrics();
  options.shared_memory = true;
  options.reflection = true;
  options.load_reports = true;
  options.tei_model = "bert";
  options.http.listen = "127.0.0.1:0";
  options.engine.device = "cpu";
  options.engine.cost_model_budget = {};
  options.engine.cpu_threads = 1;
  options.engine.models = {{"bert", kGolden + "/tiny_bert"},
                           {"ranker", kGolden + "/heads/cross_encoder"},
                           {"splade", kGolden + "/heads/splade_bert"}};
  auto server = server::Server::Start(options);
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
    std::_Exit(1);
  }
  control->metrics_port = (*server)->metrics_port();
  control->http_port = (*server)->http_port();
  control->port = (*server)->port();
  in_server = true;
  while (true) {
    control->calls_in_flight = (*server)->calls_in_flight();
    ++control->looks;
    std::this_thread::yield();
  }
}

// ---- The callers

struct Door {
  std::string path;
  std::vector<std::string> messages;
  size_t answers = 1;
  std::string model = {};  // for tei.v1, and over HTTP
  bool endless = false;    // the caller leaves after its answer
};

void PrintTo(const Door& door, std::ostream* out) { *out << door.path; }

template <typename Message>
std::string Bytes(const Message& message) {
  return message.SerializeAsString();
}

v1::EncodeRequest Texts() {
  v1::EncodeRequest request;
  request.set_model("bert");
  request.set_request_id("a request with a name that is not short");
  for (int i = 0; i < 3; ++i) request.mutable_texts()->add_texts("a beaver builds a dam");
  return request;
}

std::vector<Door> Doors() {
  std::vector<Door> doors;
  const std::string attend = Bytes(AttendOf(3, "another request with a long name"));
  doors.push_back({"castor.v1.AttentionService/Attend", {attend}});
  doors.push_back({"castor.v1.AttentionService/AttendStream", {attend, attend}, 2});
  const std::string texts = Bytes(Texts());
  doors.push_back({"castor.v1.EncoderService/Encode", {texts}});
  doors.push_back({"castor.v1.EncoderService/EncodeStream", {texts, texts}, 2});
  v1::EncodeRequest sparse = Texts();
  sparse.set_model("splade");
  sparse.set_output(v1::SPARSE);
  doors.push_back({"castor.v1.EncoderService/Encode", {Bytes(sparse)}});
  v1::RerankRequest rank;
  rank.set_model("ranker");
  rank.set_query("which animal builds dams?");
  rank.add_documents("a beaver");
  rank.add_documents("a cat, which does not like water at all");
  rank.set_return_documents(true);
  doors.push_back({"castor.v1.EncoderService/Rerank", {Bytes(rank)}});
  v1::TokenizeRequest tokenize;
  tokenize.set_model("bert");
  tokenize.mutable_texts()->add_texts("a beaver builds a dam");
  doors.push_back({"castor.v1.EncoderService/Tokenize", {Bytes(tokenize)}});
  v1::DetokenizeRequest detokenize;
  detokenize.set_model("bert");
  for (const int id : {3, 4, 5}) detokenize.mutable_tokens()->add_ids(id);
  doors.push_back({"castor.v1.EncoderService/Detokenize", {Bytes(detokenize)}});
  doors.push_back({"castor.v1.ModelService/ListModels", {""}});
  doors.push_back({"castor.v1.ServerService/GetServerInfo", {""}});
  doors.push_back({"castor.v1.SharedMemoryService/ListSharedMemory", {""}});

  inference::ModelInferRequest infer;
  infer.set_model_name("bert");
  infer.set_id("a third request with a long name");
  auto* const input = infer.add_inputs();
  input->set_name("text");
  input->set_datatype("BYTES");
  input->add_shape(1);
  input->mutable_contents()->add_bytes_contents("a beaver builds a dam");
  const std::string oip = "inference.GRPCInferenceService/";
  doors.push_back({oip + "ModelInfer", {Bytes(infer)}});
  doors.push_back({oip + "ModelStreamInfer", {Bytes(infer), Bytes(infer)}, 2});
  inference::ModelConfigRequest config;
  config.set_name("bert");
  doors.push_back({oip + "ModelConfig", {Bytes(config)}});
  doors.push_back({oip + "ModelStatistics", {""}});

  namespace tei = ::tei::v1;
  tei::EmbedRequest embed;
  embed.set_inputs("a beaver builds a dam");
  doors.push_back({"tei.v1.Info/Info", {""}});
  doors.push_back({"tei.v1.Embed/Embed", {Bytes(embed)}});
  doors.push_back({"tei.v1.Embed/EmbedStream", {Bytes(embed), Bytes(embed)}, 2});
  doors.push_back({"tei.v1.Embed/EmbedSparse", {Bytes(embed)}, 1, "splade"});
  doors.push_back({"tei.v1.Embed/EmbedAll", {Bytes(embed)}});
  doors.push_back({"tei.v1.Predict/Predict", {Bytes(embed)}, 1, "ranker"});
  tei::RerankRequest rerank;
  rerank.set_query("which animal builds dams?");
  rerank.add_texts("a beaver");
  rerank.add_texts("a cat, which does not like water at all");
  rerank.set_return_text(true);
  rerank.set_truncate(true);
  doors.push_back({"tei.v1.Rerank/Rerank", {Bytes(rerank)}, 1, "ranker"});
  tei::RerankStreamRequest part;
  part.set_query("which animal builds dams?");
  part.set_text("a cat, which does not like water at all");
  part.set_truncate(true);
  doors.push_back({"tei.v1.Rerank/RerankStream", {Bytes(part), Bytes(part)}, 1, "ranker"});
  doors.push_back({"tei.v1.Tokenize/Tokenize", {Bytes(embed)}});

  doors.push_back({"POST /v1/embeddings", {R"({"model": "bert", "input": ["a dam", "a cat"]})"}});
  doors.push_back({"POST /embed", {R"({"inputs": "a beaver"})"}});
  doors.push_back({"GET /health", {""}});

  doors.push_back({"grpc.health.v1.Health/Check", {""}});
  doors.push_back({"grpc.health.v1.Health/Watch", {""}, 1, "", /*endless=*/true});
  grpc::reflection::v1::ServerReflectionRequest question;
  question.set_file_containing_symbol("castor.v1.EncoderService");
  doors.push_back({"grpc.reflection.v1.ServerReflection/ServerReflectionInfo", {Bytes(question)}});
  return doors;
}

struct Talk {
  size_t answers = 0;
  bool told = false;  // that there was no memory: by an answer
  grpc::Status status;
};

// A connection that ends without an answer counts as one: the caller may repeat it.
Talk CallOverHttp(const Door& door) {
  const size_t space = door.path.find(' ');
  const std::string answer =
      server::HttpClient(control->http_port)
          .Ask(door.path.substr(0, space), door.path.substr(space + 1),
               (door.model.empty() ? "" : "castor-model: " + door.model + "\r\n") +
                   "Content-Length: " + std::to_string(door.messages[0].size()) + "\r\n",
               door.messages[0]);
  Talk talk;
  if (answer.starts_with("HTTP/1.1 200")) {
    talk.answers = 1;
  } else if (answer.empty() || answer.starts_with("HTTP/1.1 429") ||
             answer.starts_with("HTTP/1.1 503")) {
    talk.told = true;
    talk.status = {grpc::StatusCode::RESOURCE_EXHAUSTED, answer};
  } else {
    talk.status = {grpc::StatusCode::INTERNAL, answer};
  }
  return talk;
}

Talk Call(const std::shared_ptr<grpc::Channel>& channel, const Door& door) {
  if (door.path.find(' ') != std::string::npos) return CallOverHttp(door);
  using Stream = grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;
  const std::string path = "/" + door.path;
  const grpc::internal::RpcMethod method(path.c_str(), grpc::internal::RpcMethod::BIDI_STREAMING);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  if (!door.model.empty()) context.AddMetadata("castor-model", door.model);
  const std::unique_ptr<Stream> stream(
      grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
          channel.get(), method, &context));
  for (const std::string& message : door.messages) {
    const grpc::Slice slice(message);
    stream->Write(grpc::ByteBuffer(&slice, 1));
  }
  if (!door.endless) stream->WritesDone();
  Talk talk;
  grpc::ByteBuffer answer;
  while (stream->Read(&answer)) {
    ++talk.answers;
    grpc::Slice bytes;
    if (answer.DumpToSingleSlice(&bytes).ok()) {
      const std::string_view text(reinterpret_cast<const char*>(bytes.begin()), bytes.size());
      talk.told |= text.find("OUT_OF_MEMORY") != text.npos;
    }
    if (door.endless) context.TryCancel();
  }
  talk.status = stream->Finish();
  if (door.endless && talk.answers == 1) talk.status = grpc::Status::OK;
  return talk;
}

class ServerMemoryTest : public ::testing::TestWithParam<Door> {
 protected:
  static void SetUpTestSuite() {
    while (control->port == 0 && Alive()) std::this_thread::yield();
    channel = grpc::CreateChannel("127.0.0.1:" + std::to_string(control->port),
                                  grpc::InsecureChannelCredentials());
  }

  static bool Alive() {
    int status = 0;
    if (waitpid(server, &status, WNOHANG) == 0) return true;
    if (WIFSIGNALED(status)) ADD_FAILURE() << "the server ended by signal " << WTERMSIG(status);
    return false;
  }

  static void AwaitIdle() {
    const int64_t looks = control->looks;
    while ((control->looks < looks + 2 || control->calls_in_flight != 0) && Alive()) {
      std::this_thread::yield();
    }
  }

  static std::string Page() {
    return server::HttpClient(control->metrics_port).Ask("GET", "/metrics");
  }

  // Of all series whose names begin so.
  static double Sum(const std::string& page, const std::string& series) {
    double sum = 0;
    for (size_t at = 0; (at = page.find("\n" + series, at)) != std::string::npos; ++at) {
      const size_t end = page.find('\n', at + 1);
      const std::string line = page.substr(at + 1, end - at - 1);
      sum += std::stod(line.substr(line.rfind(' ')));
    }
    return sum;
  }

  // How many calls were told that there was no memory.
  static int Sweep(const Door& door, bool for_good) {
    int told = 0;
    for (int64_t after = 0; after < 3000; ++after) {
      control->failed = false;
      control->for_good = for_good;
      control->left = after;
      const Talk talk = Call(channel, door);
      const std::string outcome = Outcome(talk.status);
      if (!talk.status.ok()) {
        EXPECT_EQ(talk.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
            << outcome << ": " << talk.status.error_message();
      } else {
        EXPECT_EQ(talk.answers, door.answers);
      }
      AwaitIdle();
      control->left = kNever;
      told += outcome == "RESOURCE_EXHAUSTED OUT_OF_MEMORY" || talk.told;
      if (!control->failed) {
        EXPECT_EQ(outcome, "OK") << talk.status.error_message();
        EXPECT_FALSE(talk.told);
        return told;
      }
      if (HasFailure()) {
        ADD_FAILURE() << "with allocation " << after << " failing" << (for_good ? " for good" : "");
        return told;
      }
    }
    ADD_FAILURE() << "it allocates for ever";
    return told;
  }

 public:
  static inline pid_t server = 0;
  static inline std::shared_ptr<grpc::Channel> channel;
};

TEST_P(ServerMemoryTest, EveryCallIsAnsweredOnce) {
  ASSERT_TRUE(Alive());
  ASSERT_EQ(Outcome(Call(channel, GetParam()).status), "OK");
  EXPECT_GT(Sweep(GetParam(), /*for_good=*/false), 0);
  Sweep(GetParam(), /*for_good=*/true);
  ASSERT_TRUE(Alive());
  const std::string page = Page();
  EXPECT_EQ(Sum(page, "castor_inflight_calls"), 0);
  EXPECT_EQ(Sum(page, "castor_inflight_bytes"), 0);
}

std::string NameOfDoor(const ::testing::TestParamInfo<Door>& door) {
  std::string name;
  for (const char c : door.param.path.substr(door.param.path.find('/') + 1)) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
  }
  return name + std::to_string(door.index);
}
INSTANTIATE_TEST_SUITE_P(Doors, ServerMemoryTest, ::testing::ValuesIn(Doors()), NameOfDoor);

// Forks the server before anything of gRPC runs.
class ServerProcessEnvironment final : public ::testing::Environment {
 public:
  void SetUp() override {
    void* const memory =
        mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    control = new (memory) Control;
    ServerMemoryTest::server = fork();
    if (ServerMemoryTest::server == 0) Serve();
  }
  void TearDown() override {
    ServerMemoryTest::channel.reset();
    kill(ServerMemoryTest::server, SIGKILL);
    waitpid(ServerMemoryTest::server, nullptr, 0);
  }
};
[[maybe_unused]] ::testing::Environment* const environment =
    ::testing::AddGlobalTestEnvironment(new ServerProcessEnvironment);

void* New(size_t size, size_t alignment) {
  if (MustFail()) throw std::bad_alloc();
  size = std::max<size_t>(size, 1);
  void* const data =
      alignment <= alignof(std::max_align_t)
          ? std::malloc(size)
          : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

}  // namespace
}  // namespace castor::testing

// The library's other forms call these. Not inlined: GCC would see a free() of what new gave.
#define CASTOR_NOINLINE __attribute__((noinline))
CASTOR_NOINLINE void* operator new(size_t size) { return castor::testing::New(size, 1); }
CASTOR_NOINLINE void* operator new(size_t size, std::align_val_t alignment) {
  return castor::testing::New(size, static_cast<size_t>(alignment));
}
CASTOR_NOINLINE void operator delete(void* data) noexcept { std::free(data); }
CASTOR_NOINLINE void operator delete(void* data, size_t) noexcept { std::free(data); }
CASTOR_NOINLINE void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
CASTOR_NOINLINE void operator delete(void* data, size_t, std::align_val_t) noexcept {
  std::free(data);
}
