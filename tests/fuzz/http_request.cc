// Bodies of requests over HTTP: each is refused with a reason, or becomes work for the engine or an
// answer in JSON. The first byte says which route the rest is for.

#include <cstdint>
#include <cstdlib>

#include "engine/base/error.h"
#include "server/http/door.h"
#include "server/services/message_stream.h"
#include "tests/support/fake_engine.h"

namespace castor::server::http {
namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

// What handlers are given, without a socket.
struct Rooms {
  Rooms() {
    ModelInfo embedder = engine.models()->front();
    embedder.prompts.all = {{"query", "q: "}};
    ModelInfo classifier = embedder;
    classifier.name = "classifier";
    classifier.outputs = {EncodeOutput::kScores, EncodeOutput::kLogits};
    classifier.labels = {"a", "b"};
    ModelInfo reranker = classifier;
    reranker.name = "reranker";
    reranker.labels = {"a"};
    engine.SetModels({classifier, reranker, embedder});
  }

  FakeEngine engine;
  Lifecycle lifecycle;
  Metrics metrics{engine};
  SharedMemory shared_memory{0, false};
  DecodeBudget decoding{engine.options(), 64 << 20};
  Connections connections{{.total = 1, .per_host = 1}, nullptr};
  CallTable calls{{1, 1, 1 << 20, std::chrono::seconds(1)}, connections, metrics};
  OpenStreams streams;
  OpenToAll authorizer;
  const ServiceContext services{engine, lifecycle, metrics,    shared_memory,           decoding,
                                calls,  streams,   authorizer, std::chrono::seconds(1), [] {}};
  const oip::Catalogue catalogue{engine};
  const Door door{.services = services,
                  .catalogue = catalogue,
                  .ready = [] { return true; },
                  .default_model = {},
                  .max_body_bytes = 1 << 20,
                  .allow_origin = {},
                  .token_ids = true};
};

}  // namespace
}  // namespace castor::server::http

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace castor::server::http;
  static Rooms& rooms = *new Rooms;
  if (size == 0) return 0;
  const Route& route = Routes()[data[0] % Routes().size()];
  std::string body(reinterpret_cast<const char*>(data + 1), size - 1);
  // A first line may say where the JSON ends.
  Header header{.method = std::string(route.method), .path = std::string(route.path), .peer = ""};
  if (const size_t at = body.find('\n'); at < 8) {
    header.fields.emplace_back("inference-header-content-length", body.substr(0, at));
    body.erase(0, at + 1);
  }
  Asked asked{.header = header, .wildcard = "castor_attention"};
  absl::Status parsed;
  if (route.example.empty()) {
    asked.raw = body;
  } else {
    parsed = asked.body.Parse(body, rooms.decoding);
  }
  if (!parsed.ok()) {
    Require(castor::ReasonOf(parsed) == castor::Reason::kMalformedMessage ||
            castor::ReasonOf(parsed) == castor::Reason::kQueueFull);
    return 0;
  }
  auto work = route.handle(rooms.door, asked);
  if (!work.ok()) {
    Require(!work.status().message().empty());
    Require(work.status().code() != absl::StatusCode::kInternal);
    return 0;
  }
  if (const auto* texts = std::get_if<TextsWork>(&*work)) {
    Require(texts->write != nullptr);
    if (const auto* input = std::get_if<castor::TextInput>(&texts->decoded.request.input)) {
      Require(!input->texts.empty());
      Require(input->pairs.empty() || input->pairs.size() == input->texts.size());
    }
  }
  return 0;
}
