// A request over HTTP as a call: it passes the same bounds, authorizer, records and engine requests
// as a gRPC call.
//
//   connection's thread   Begin: the table's bounds, whether the caller may -> the body
//                         OnBody -> the route's handler -> EngineRequest::Start
//   completion thread     Deliver or Refuse: counted, then given to the connection
//   table's thread        End: refuses a call whose body does not come
//
// The connection owns the call, and while the engine has its request the call owns itself.

#include <algorithm>
#include <atomic>
#include <charconv>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "engine/base/error.h"
#include "engine/base/guarded.h"
#include "engine/base/mutex.h"
#include "server/http/door.h"
#include "server/oip/infer_request.h"
#include "server/services/engine_protocols.h"
#include "server/services/engine_request.h"

namespace castor::server::http {
namespace {

// A body up to this size is not counted as its sender's: each connection may have one.
constexpr int64_t kUncountedBytes = 16 << 10;

// EngineRequest's protocol for TextsWork.
class TextsProtocol {
 public:
  using Decoded = DecodedRerank;
  using Result = EncodeResult;
  static constexpr bool kKeepsResult = true;

  explicit TextsProtocol(const TextsWork& work) : work_(work) {}

  static std::optional<KernelName> RequestedKernel(const Decoded& decoded) {
    return EncodeProtocol::RequestedKernel(decoded);
  }
  static std::optional<OutputRange> TakeOutput(Decoded&) { return std::nullopt; }
  grpc::ByteBuffer Encode(std::string_view, EncodeResult result, const std::optional<OutputRange>&,
                          double) {
    result_ = std::make_shared<EncodeResult>(std::move(result));
    return {};
  }
  absl::Status Refusal(const absl::Status& error, bool submitted) const {
    const bool late = work_.decoded.ranking.late_interaction;
    return RenameTextFields(error, work_.names, late, submitted);
  }
  std::shared_ptr<EncodeResult> TakeResult() { return std::move(result_); }

 private:
  const TextsWork& work_;
  std::shared_ptr<EncodeResult> result_;
};

class InferRequest final : public oip::InferRequest {
 public:
  using oip::InferRequest::InferRequest;
};

// Azure's SDKs send their key in a header of its own.
std::string ApiKey(const Header& header) {
  for (const auto& [name, value] : header.fields) {
    if (name == "api-key") return "Bearer " + value;
  }
  return "";
}

int64_t BytesOf(const EncodeResult& result) {
  int64_t bytes = static_cast<int64_t>(result.output.data.size() + result.text.size());
  for (const OutputRows& rows : result.outputs) {
    bytes += static_cast<int64_t>(rows.values.data.size());
  }
  if (result.sparse.has_value()) bytes += result.sparse->size_bytes();
  if (result.tokenized.has_value()) bytes += result.tokenized->size_bytes();
  return bytes;
}

class HttpCall final : public Exchange,
                       public Call,
                       private RequestShell,
                       public std::enable_shared_from_this<HttpCall> {
 public:
  HttpCall(const Door& door, Header header, std::shared_ptr<Responder> responder)
      : door_(door),
        services_(door.services),
        header_(std::move(header)),
        api_key_(ApiKey(header_)),
        found_(FindRoute(door, header_.method, header_.path)),
        responder_(std::move(responder)),
        request_id_(Printable(Call::header("x-request-id"), kMaxRequestIdBytes)),
        caller_(services_.authorizer.Authorize(*this, may())),
        record_(services_, MethodOf(), name(), Trace()) {}

  // ---- Call

  std::string peer() const override { return header_.peer; }
  std::vector<std::string_view> headers(std::string_view name) const override {
    std::vector<std::string_view> values;
    for (const auto& [field, value] : header_.fields) {
      if (field == name) values.emplace_back(value);
    }
    if (name == "authorization" && values.empty() && !api_key_.empty()) {
      values.emplace_back(api_key_);
    }
    return values;
  }
  int64_t header_bytes() const override {
    int64_t bytes = static_cast<int64_t>(header_.path.size());
    for (const auto& [field, value] : header_.fields) {
      bytes += static_cast<int64_t>(field.size() + value.size()) + 32;
    }
    return bytes;
  }
  std::optional<CertificateNames> certificate() const override { return header_.certificate; }
  TimePoint deadline(std::chrono::milliseconds longest) const override {
    const std::string_view text = header("castor-timeout-ms");
    int64_t ms = 0;
    std::from_chars(text.data(), text.data() + text.size(), ms);
    if (ms <= 0 || ms > longest.count()) ms = longest.count();
    return std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
  }
  void AddTrailer(const std::string& name, const std::string& value) override {
    trailers_.emplace_back(name, name.ends_with("-bin") ? absl::Base64Escape(value) : value);
  }
  void Cancel() override { responder_->Close(); }

  // ---- Exchange

  std::optional<Answer> Begin(int64_t body_bytes) override {
    if (header_.method == "OPTIONS" && !door_.allow_origin.empty()) return Preflight();
    entered_ = true;
    const absl::Status may = Guarded([&] { return MayBegin(body_bytes); });
    if (!may.ok()) return Refusal(may);
    turn_ = Turn::kBody;
    return std::nullopt;
  }

  std::optional<Answer> Hold(int64_t bytes) override {
    if (bytes <= kUncountedBytes) return std::nullopt;
    held_.reset();  // both together could exceed the quota
    const absl::Status may = Guarded([&]() -> absl::Status {
      if (bytes > 2 * door_.max_body_bytes) return TooLarge();  // in chunks
      const std::string host = header_.peer.substr(0, header_.peer.rfind(':'));
      auto held = services_.engine.Reserve(caller_->tenant.empty() ? host : caller_->tenant, bytes);
      if (held.ok()) held_ = *std::move(held);
      return held.status();
    });
    if (may.ok() || !Pass(Turn::kBody, Turn::kOurs)) return std::nullopt;
    return Refusal(may);
  }

  void OnBody(std::string body) override {
    if (!Pass(Turn::kBody, Turn::kOurs)) return;
    if (static_cast<int64_t>(body.size()) > door_.max_body_bytes) return Refuse(TooLarge());
    services_.calls.Received(row_);
    record_.Received(body.size());
    deadline_ = record_.DeadlineOf(*this);
    const absl::Status started = Guarded([&]() -> absl::Status {
      asked_.emplace(Asked{.header = header_, .wildcard = found_.wildcard});
      if (!found_.model.empty()) asked_->model = found_.model;
      if (const auto named = header("castor-model"); !named.empty()) asked_->model = named;
      if (!found_.route->example.empty()) {
        return asked_->body.Parse(std::move(body), services_.decoding);
      }
      asked_->raw = std::move(body);
      return absl::OkStatus();
    });
    if (!started.ok()) return Refuse(started);
    StartOrRefuse();
  }

  void OnGone() override {
    const Turn turn = turn_.exchange(Turn::kOurs);
    if (turn == Turn::kBody) Refuse(CallRecord::CallerGone());
    record_.Lost();
    if (entered_) services_.calls.Cancelled(row_);
    MutexLock lock(starting_mu_);
    if (texts_.has_value()) texts_->Cancel();
    if (infer_.has_value()) infer_->Cancel();
  }

 private:
  absl::Status MayBegin(int64_t body_bytes) {
    if (absl::Status s = services_.calls.Enter(
            row_, is_health() ? CallTable::Kind::kHealth : CallTable::Kind::kWork, *this,
            [this](const absl::Status& why) { return End(why); });
        !s.ok()) {
      return s;
    }
    if (!caller_.ok()) return caller_.status();
    if (!record_.accepted()) return CallRecord::Draining();
    if (found_.route == nullptr) {
      return MakeError(
          Reason::kNotServed,
          header_.path + (found_.allowed.empty() ? " is no path of this server; see /docs"
                                                 : " takes " + found_.allowed));
    }
    return body_bytes > door_.max_body_bytes ? TooLarge() : absl::OkStatus();
  }

  // Says who may refuse the call.
  enum class Turn {
    kOurs,  // the connection's thread, or it is with the engine or answered
    kBody,  // the first to take it: the connection when the body has come, or the table
  };

  bool Pass(Turn from, Turn to) { return turn_.compare_exchange_strong(from, to); }

  std::string_view may() const { return found_.route == nullptr ? kMayGetInfo : found_.route->may; }
  std::string_view name() const { return may().substr(1); }
  Method MethodOf() const {
    static constexpr std::pair<std::string_view, Method> kMethods[] = {
        {kMayEncode, Method::kEncode},
        {kMayRerank, Method::kRerank},
        {kMayTokenize, Method::kTokenize},
        {kMayDetokenize, Method::kDetokenize},
        {kMayInfer, Method::kModelInfer}};
    for (const auto& [may_call, method] : kMethods) {
      if (may() == may_call) return method;
    }
    return Method::kOther;
  }
  bool is_health() const { return may() == kMayCheck; }

  CallTrace Trace() const {
    if (services_.tracer == nullptr || MethodOf() == Method::kOther) return {};
    return BeginTrace(*services_.tracer, *this, name(), caller_.ok());
  }

  bool End(const absl::Status& why) {
    if (!Pass(Turn::kBody, Turn::kOurs)) return false;
    Refuse(why);
    return true;
  }

  absl::Status TooLarge() const {
    return MakeError(Reason::kTooLarge,
                     "the body is larger than " + std::to_string(door_.max_body_bytes) +
                         " bytes, which --max-message-bytes and --max-queued-bytes allow");
  }

  // A request whose model is being loaded starts again, on another thread, when it is there. Its
  // body counts as gathered meanwhile.
  void StartOrRefuse() {
    absl::Status started = Guarded([&] { return Start(); });
    if (const auto model = LoadingModelOf(started); model.has_value() && asked_.has_value()) {
      started = Guarded([&] {
        return services_.engine.AwaitModel(
            *model, deadline_, [self = shared_from_this()](const absl::Status& loaded) {
              loaded.ok() ? self->StartOrRefuse() : self->Refuse(loaded);
            });
      });
      if (started.ok()) return;
    }
    if (!started.ok()) Refuse(started);
  }

  // Hands the request to the engine, or answers it.
  absl::Status Start() {
    absl::StatusOr<Work> work = found_.route->handle(door_, *asked_);
    if (!work.ok()) return work.status();
    held_.reset();  // from here on admission counts it
    const std::optional<Asked> asked =
        std::exchange(asked_, std::nullopt);  // what texts point into
    const RequestParts parts{services_.engine, services_.shared_memory, services_.metrics,
                             services_.decoding};
    const RequestOrigin origin{record_.received(), deadline_, caller_->tenant, record_.trace()};
    if (auto* answer = std::get_if<Answer>(&*work)) {
      AddFields(answer);
      record_.Answered(answer->body.size(), {}, request_id_);
      Send(std::move(*answer));
    } else if (auto* texts = std::get_if<TextsWork>(&*work)) {
      texts_work_ = std::move(*texts);
      texts_work_.decoded.request.call.request_id = request_id_;
      auto decoded = std::move(texts_work_.decoded);
      texts_work_.decoded.ranking = decoded.ranking;
      self_ = shared_from_this();
      Make(&texts_, parts, texts_work_).Start(std::move(decoded), origin);
    } else if (auto* const model = std::get_if<ModelWork>(&*work)) {
      self_ = shared_from_this();
      model->begin([this](const absl::Status& done) {
        if (!done.ok()) return Refuse(done);
        Answer answer{.body = "{}"};
        AddFields(&answer);
        record_.Answered(answer.body.size(), {}, request_id_);
        Send(std::move(answer));
      });
    } else {
      infer_work_ = std::get<InferWork>(std::move(*work));
      self_ = shared_from_this();
      Make(&infer_, parts, door_.catalogue).Start(&infer_work_.message, origin);
    }
    return absl::OkStatus();
  }

  // A request that waited for its model is made beside OnGone.
  template <typename Request, typename Argument>
  Request& Make(std::optional<Request>* request, const RequestParts& parts,
                const Argument& argument) {
    MutexLock lock(starting_mu_);
    return request->emplace(parts, static_cast<RequestShell&>(*this), argument);
  }

  Subject subject() const {
    return texts_.has_value()   ? texts_->subject()
           : infer_.has_value() ? infer_->subject()
                                : Subject();
  }

  // ---- RequestShell

  void Deliver(grpc::ByteBuffer answer) override {
    int64_t bytes = static_cast<int64_t>(answer.Length());
    Answer text;
    if (texts_.has_value()) {
      auto result = texts_->protocol().TakeResult();
      bytes = BytesOf(*result);
      text = texts_work_.write(result);
      text.held = std::move(result);
    } else {
      auto written = infer_work_.write(std::move(answer));
      if (!written.ok()) return Refuse(written.status());
      text = *std::move(written);
    }
    if (services_.load_reports != nullptr) {
      AddTrailer(kLoadReportTrailer,
                 services_.load_reports->Trailer(std::chrono::steady_clock::now()));
    }
    AddFields(&text);
    // Before its conversion to text, which is done while it is sent.
    record_.Answered(static_cast<size_t>(bytes), subject(), request_id_);
    Send(std::move(text));
  }

  void Refuse(const absl::Status& error) override { Send(Refusal(error)); }

  Answer Refusal(const absl::Status& error) noexcept {
    const google::rpc::Status told = record_.RefusedMessage(error, subject(), request_id_);
    Answer answer{.status = 503};
    Guarded([&] {
      if (ReasonOf(error) == Reason::kOutOfMemory) {  // nlohmann's destructors abort without memory
        answer.body = R"({"error":"out of memory"})";
        return;
      }
      answer =
          ErrorAnswer(found_.route == nullptr ? ErrorForm::kOpenAi : found_.route->errors, told);
      if (found_.route == nullptr && answer.status == 501) {
        answer.status = found_.allowed.empty() ? 404 : 405;
        if (!found_.allowed.empty()) answer.fields.emplace_back("Allow", found_.allowed);
      }
      AddFields(&answer);
    }).IgnoreError();
    return answer;
  }

  // The call may be gone when it returns.
  void Send(Answer answer) {
    if (entered_) services_.calls.Answering(row_, deadline_);
    const auto self = std::move(self_);
    const auto responder = responder_;
    responder->Respond(std::move(answer));
  }

  void AddFields(Answer* answer) {
    if (!request_id_.empty()) answer->fields.emplace_back("x-request-id", request_id_);
    if (!door_.allow_origin.empty()) {
      answer->fields.emplace_back("Access-Control-Allow-Origin", door_.allow_origin);
      answer->fields.emplace_back("Access-Control-Expose-Headers", "x-request-id, retry-after");
    }
    answer->fields.insert(answer->fields.end(), trailers_.begin(), trailers_.end());
  }

  Answer Preflight() {
    Answer answer{.status = 204, .content_type = ""};
    AddFields(&answer);
    answer.fields.emplace_back("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    answer.fields.emplace_back("Access-Control-Allow-Headers",
                               Call::header("access-control-request-headers"));
    answer.fields.emplace_back("Access-Control-Max-Age", "86400");
    return answer;
  }

  const Door& door_;
  const ServiceContext& services_;
  const Header header_;
  const std::string api_key_;  // as a bearer token
  const Found found_;
  const std::shared_ptr<Responder> responder_;
  const std::string request_id_;
  const absl::StatusOr<Caller> caller_;
  CallRecord record_;
  std::atomic<Turn> turn_ = Turn::kOurs;
  bool entered_ = false;
  TimePoint deadline_ = TimePoint::max();
  std::shared_ptr<void> held_;  // the body's bytes, in the tenant's quota
  Fields trailers_;
  std::optional<Asked> asked_;  // until the engine has the request
  TextsWork texts_work_;
  InferWork infer_work_;
  Mutex starting_mu_;  // held to make either of these, and to cancel it
  std::optional<EngineRequest<TextsProtocol>> texts_;
  std::optional<InferRequest> infer_;
  std::shared_ptr<HttpCall> self_;
  CallTable::Row row_;  // last: the table's thread may call End until it has left
};

}  // namespace

MakeExchange MakeHttpCalls(const Door& door) {
  return [&door](Header header, std::shared_ptr<Responder> responder) {
    std::shared_ptr<Exchange> call;
    Guarded([&] {
      call = std::make_shared<HttpCall>(door, std::move(header), std::move(responder));
    }).IgnoreError();
    return call;
  };
}

}  // namespace castor::server::http
