// The HTTP door to the server's rooms: the routes, and what their handlers share. A handler reads
// one request's body and says what the engine shall compute and how its result is written;
// http_call does everything that is alike for all.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "server/codec/rerank_codec.h"
#include "server/http/exchange.h"
#include "server/http/json.h"
#include "server/oip/catalogue.h"
#include "server/services/call.h"

namespace castor::server::http {

// Lives as long as the Server. Constant; any thread.
struct Door {
  const ServiceContext& services;
  const oip::Catalogue& catalogue;    // for /v2
  const std::function<bool()> ready;  // whether work is taken
  const std::string default_model;    // --tei-model; may be empty
  const int64_t max_body_bytes = 0;
  const std::string allow_origin;  // of browsers' requests; empty: none
  const bool token_ids = false;    // whether ids are taken in place of texts
  const int64_t started = 0;       // seconds since 1970

  // The loaded models now; those without outputs hold CAST layers and encode nothing.
  std::shared_ptr<const ModelInfos> models() const { return services.engine.models(); }
};

// One request, as its handler sees it. Texts point into `body`.
struct Asked {
  const Header& header;
  std::string_view wildcard = {};  // the part of the path that the route's `*` stands for
  // By the header castor-model or the path's /models/NAME/.
  std::optional<std::string> model = std::nullopt;
  std::string raw = {};  // the body as it came
  JsonBody body = {};    // parsed, if the route takes JSON
};

// Work for the engine, and how the result becomes an answer.
struct TextsWork {
  DecodedRerank decoded = {};  // of a rerank, or of any other request
  TextFields names = {};       // of the protocol, for its errors
  absl::AnyInvocable<Answer(std::shared_ptr<EncodeResult>)> write = nullptr;
};

// A ModelInferRequest, and how the bytes of its ModelInferResponse become an answer.
struct InferWork {
  grpc::ByteBuffer message;
  absl::AnyInvocable<absl::StatusOr<Answer>(grpc::ByteBuffer)> write;
};

// Loading or unloading a model, which is answered with {}.
struct ModelWork {
  std::function<void(ModelCompletion)> begin;
};

using Work = std::variant<Answer, TextsWork, InferWork, ModelWork>;

// How a protocol says that a request has failed.
enum class ErrorForm {
  kOpenAi,  // {"error": {"message", "type", "param", "code"}}
  kTei,     // {"error", "error_type"}
  kPlain,   // {"error"}
};

// The permissions that routes need: those of the gRPC methods that do the same.
inline constexpr std::string_view kMayEncode = "/castor.v1.EncoderService/Encode";
inline constexpr std::string_view kMayRerank = "/castor.v1.EncoderService/Rerank";
inline constexpr std::string_view kMayTokenize = "/castor.v1.EncoderService/Tokenize";
inline constexpr std::string_view kMayDetokenize = "/castor.v1.EncoderService/Detokenize";
inline constexpr std::string_view kMayListModels = "/castor.v1.ModelService/ListModels";
inline constexpr std::string_view kMayGetInfo = "/castor.v1.ServerService/GetServerInfo";
inline constexpr std::string_view kMayInfer = "/inference.GRPCInferenceService/ModelInfer";
inline constexpr std::string_view kMayGetMetadata = "/inference.GRPCInferenceService/ModelMetadata";
inline constexpr std::string_view kMayLoad = "/castor.v1.ModelService/LoadModel";
inline constexpr std::string_view kMayUnload = "/castor.v1.ModelService/UnloadModel";
inline constexpr std::string_view kMayCheck = "/grpc.health.v1.Health/Check";  // every caller

struct Route {
  std::string_view method;
  std::string_view path;  // with at most one `*`, for any text
  std::string_view may;   // the permission that it needs
  ErrorForm errors;
  absl::StatusOr<Work> (*handle)(const Door& door, Asked& asked);
  std::string_view summary;
  std::string_view example = {};  // of a body in JSON, for /docs
};

// In the order in which they are tried.
std::span<const Route> Routes();

// The tables that Routes() joins.
std::span<const Route> OpenAiRoutes();  // and vLLM's
std::span<const Route> RerankRoutes();
std::span<const Route> TeiRoutes();    // and Weaviate's
std::span<const Route> InferRoutes();  // the Open Inference Protocol

struct Found {
  const Route* route = nullptr;  // null: there is none
  std::string wildcard = {};
  std::string model = {};    // of the prefix /models/NAME
  std::string allowed = {};  // methods of the path, where the request's is none of them
};
Found FindRoute(const Door& door, std::string_view method, std::string_view path);

Answer JsonAnswer(const Json& json);

// An error in the form of a protocol, with its status and when to retry.
Answer ErrorAnswer(ErrorForm form, const google::rpc::Status& error);

// Appends the i-th row of a list. Called for each in turn.
using RowWriter = absl::AnyInvocable<void(size_t i, std::string* out)>;

// An answer that is a list, with commas between its rows. Its text is made piece by piece.
struct ListAnswer {
  std::string head = {};
  size_t rows = 0;
  RowWriter row = nullptr;
  std::string tail = {};
};
Answer AnswerOf(ListAnswer list);

// Makes the exchanges of a Listener. `door` must outlive them.
MakeExchange MakeHttpCalls(const Door& door);

}  // namespace castor::server::http
