#include <algorithm>
#include <chrono>
#include <climits>
#include <map>
#include <type_traits>
#include <utility>

#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"
#include "client/cli/attend_shared.h"
#include "client/cli/command.h"
#include "client/cli/exact_check.h"
#include "client/client.h"
#include "client/load/base/errors.h"
#include "client/load/target/answer_reader.h"
#include "client/load/target/gaussian.h"
#include "client/load/target/protocol.h"
#include "client/load/target/requests.h"

namespace castor::load {
namespace {

constexpr char kAttend[] = "/castor.v1.AttentionService/Attend";
constexpr char kEncode[] = "/castor.v1.EncoderService/Encode";

// The same text in another batch may be added up in another order: an element of an embedding may
// differ by 2e-5.
constexpr double kEncodeTolerance = 1e-4;

uint64_t SeedOf(uint64_t seed, const ClassSpec& spec, size_t payload) {
  return MixSeed(MixSeed(seed, std::hash<std::string>()(spec.name)), payload);
}

// The class as its payload `i` is drawn.
ClassSpec ForPayload(const ClassSpec& spec, size_t i) {
  ClassSpec one = spec;
  if (!spec.calls.empty()) one.call = spec.calls[i];
  one.calls.clear();
  return one;
}

template <typename Message>
std::optional<Message> Parse(std::string_view bytes) {
  Message message;
  if (bytes.size() > INT_MAX ||
      !message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return std::nullopt;
  }
  return message;
}

class CastorProtocol : public Protocol {
 public:
  CastorProtocol(std::vector<std::string> endpoints, client::ClientOptions client)
      : endpoints_(std::move(endpoints)), client_(std::move(client)) {}

  ~CastorProtocol() override {
    for (const auto& problem : shared_) {
      for (const std::string& endpoint : endpoints_) {
        client::ClientOptions options = client_;
        options.target = endpoint;
        options.deadline = std::chrono::seconds(5);
        client::Client client(options);
        (void)client.UnregisterSharedMemory(problem->memory().name());
      }
    }
  }

  std::vector<Payload> MakePayloads(const ClassSpec& spec, uint64_t seed) override {
    std::vector<Payload> payloads;
    const auto* encode = std::get_if<EncodeSpec>(&spec.call);
    std::vector<std::string> texts;
    if (encode != nullptr && !encode->text_file.empty()) texts = ReadTexts(encode->text_file);
    for (size_t i = 0; i < static_cast<size_t>(spec.payloads); ++i) {
      const uint64_t own = SeedOf(seed, spec, i);
      const ClassSpec one = ForPayload(spec, i);
      payloads.push_back(encode != nullptr ? OfEncode(MakeEncode(one, texts, own))
                                           : OfAttend(one, MakeAttend(one, own)));
    }
    return payloads;
  }

  AnswerFacts Read(const Payload& payload, std::string_view answer) const override {
    return payload.method == kAttend ? ReadAttendAnswer(answer) : ReadEncodeAnswer(answer);
  }

  std::optional<std::string> Elements(const Payload& payload,
                                      std::string_view answer) const override {
    if (payload.method == kAttend) return ElementsOf<v1::AttendResponse>(answer);
    return ElementsOf<v1::EncodeResponse>(answer);
  }

  double Tolerance(const ClassSpec& spec) const override {
    return std::holds_alternative<EncodeSpec>(spec.call) ? kEncodeTolerance : 0;
  }

  std::optional<double> ExactError(const ClassSpec& spec, uint64_t seed, size_t payload,
                                   std::string_view answer, int64_t max_operations) const override {
    if (!std::holds_alternative<AttendSpec>(spec.call)) return std::nullopt;
    const auto response = Parse<v1::AttendResponse>(answer);
    if (!response.has_value()) return std::nullopt;
    std::string problem;
    const auto result =
        cli::CheckExactly(MakeAttend(ForPayload(spec, payload), SeedOf(seed, spec, payload)),
                          response->output(), max_operations, &problem);
    if (!result.has_value()) return std::nullopt;
    return result->relative_error;
  }

 private:
  static Payload OfEncode(const v1::EncodeRequest& request) {
    return {.method = kEncode,
            .message = request.SerializeAsString(),
            .sequences = request.texts().texts_size()};
  }

  Payload OfAttend(const ClassSpec& spec, const v1::AttendRequest& request) {
    Payload payload = {.method = kAttend, .sequences = request.query_lengths_size()};
    for (const int64_t length : request.query_lengths()) payload.tokens += length;
    payload.message = (spec.shared_memory ? Share(request) : request).SerializeAsString();
    return payload;
  }

  // The inputs in shared memory. Answers come as messages: calls in flight at the same time share
  // their inputs, and would need a range each for their outputs.
  v1::AttendRequest Share(const v1::AttendRequest& request) {
    auto problem = std::make_unique<cli::SharedProblem>(request, KeyPrefix());
    v1::AttendRequest shared = problem->request();
    shared.clear_output();
    for (const std::string& endpoint : endpoints_) {
      client::ClientOptions options = client_;
      options.target = endpoint;
      client::Client client(options);
      const auto registered = client.RegisterSharedMemory(problem->memory());
      if (!registered.ok()) {
        throw ServerError("shared memory at " + endpoint + ": " + registered.error().ToString());
      }
    }
    shared_.push_back(std::move(problem));
    return shared;
  }

  // Every endpoint must take the objects of this caller, whose name they all know alike.
  std::string KeyPrefix() const {
    client::ClientOptions options = client_;
    options.target = endpoints_.front();
    client::Client client(options);
    auto prefix = cli::SharedKeyPrefix(client);
    if (!prefix.ok()) {
      throw ServerError("shared memory at " + options.target + ": " + prefix.error().ToString());
    }
    return *prefix;
  }

  template <typename Message>
  static std::optional<std::string> ElementsOf(std::string_view answer) {
    auto message = Parse<Message>(answer);
    if (!message.has_value()) return std::nullopt;
    if constexpr (std::is_same_v<Message, v1::EncodeResponse>) {
      if (message->has_sparse()) return message->sparse().SerializeAsString();
    }
    return std::move(*message->mutable_output()->mutable_raw());
  }

  const std::vector<std::string> endpoints_;
  const client::ClientOptions client_;
  std::vector<std::unique_ptr<cli::SharedProblem>> shared_;
};

}  // namespace

std::unique_ptr<Protocol> MakeCastorProtocol(const std::vector<std::string>& endpoints,
                                             const client::ClientOptions& client) {
  return std::make_unique<CastorProtocol>(endpoints, client);
}

}  // namespace castor::load
