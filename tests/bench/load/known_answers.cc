#include "tests/bench/load/known_answers.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <utility>

#include "client/error.h"
#include "tests/bench/command_line.h"
#include "tests/bench/load/requests.h"

namespace castor::bench {
namespace {

constexpr float kTolerance = 2e-5F;  // of an embedding's element: rows have unit norm
constexpr int kOfEachKind = 12;

template <typename Message>
std::optional<std::string> Elements(const grpc::ByteBuffer& bytes) {
  grpc::Slice slice;
  Message message;
  if (!bytes.DumpToSingleSlice(&slice).ok() ||
      !message.ParseFromArray(slice.begin(), static_cast<int>(slice.size()))) {
    return std::nullopt;
  }
  return std::move(*message.mutable_output()->mutable_raw());
}

std::optional<std::string> ElementsOf(const char* method, const grpc::ByteBuffer& answer) {
  return std::string_view(method) == kAttend ? Elements<v1::AttendResponse>(answer)
                                             : Elements<v1::EncodeResponse>(answer);
}

template <typename Message>
KnownProblem SolveBy(Caller& caller, const char* method, Message message) {
  KnownProblem problem = {.method = method};
  const v1::Priority priorities[] = {v1::LOW, v1::NORMAL, v1::HIGH};
  for (size_t i = 0; i < problem.requests.size(); ++i) {
    message.set_priority(priorities[i]);
    problem.requests[i] = BytesOf(message);
  }
  const Answer answer = caller.CallAndWait(method, problem.requests[1],
                                           {.deadline = Clock::now() + std::chrono::minutes(2)});
  auto elements = ElementsOf(method, answer.bytes);
  if (answer.code != grpc::StatusCode::OK || !elements.has_value() || elements->empty()) {
    Die("a problem alone is answered " + std::string(client::NameOf(answer.code)) + " " +
        answer.reason);
  }
  problem.elements = *std::move(elements);
  return problem;
}

void SetKernel(std::string_view kernel, const AttendSize& size, uint64_t seed,
               v1::AttendRequest& message) {
  if (kernel == "vanilla" || kernel == "causal") {
    message.mutable_vanilla()->set_causal(kernel == "causal");
  } else if (kernel == "clustered") {
    message.mutable_clustered()->set_clusters(10);
  } else if (kernel == "improved") {
    message.mutable_improved_clustered()->set_clusters(10);
  } else if (kernel == "automatic") {
    message.mutable_automatic();
  } else {
    v1::Cast& cast = *message.mutable_cast();
    *cast.mutable_surrogate_tokens() =
        AttendMessage({.tokens = 4, .heads = size.heads, .head_dim = size.head_dim}, seed).query();
    *cast.mutable_gate() =
        AttendMessage({.tokens = size.tokens, .heads = 1, .head_dim = 1}, seed).key();
    cast.mutable_gate()->mutable_shape()->Truncate(1);
  }
}

}  // namespace

KnownProblem Solve(Caller& caller, v1::AttendRequest message) {
  return SolveBy(caller, kAttend, std::move(message));
}

KnownProblem Solve(Caller& caller, v1::EncodeRequest message) {
  return SolveBy(caller, kEncode, std::move(message));
}

std::vector<KnownProblem> KnownProblems(Caller& caller, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto one_of = [&random](std::initializer_list<int64_t> choices) {
    return choices.begin()[std::uniform_int_distribution<size_t>(0, choices.size() - 1)(random)];
  };
  std::vector<KnownProblem> problems;
  for (int i = 0; i < kOfEachKind; ++i) {
    for (const char* kernel : {"vanilla", "causal", "clustered", "improved", "automatic", "cast"}) {
      const AttendSize size = {.tokens = one_of({1, 7, 16, 64, 130, 300}),
                               .heads = one_of({1, 2, 4}),
                               .head_dim = one_of({16, 32, 64})};
      v1::AttendRequest message = AttendMessage(size, random());
      SetKernel(kernel, size, random(), message);
      problems.push_back(Solve(caller, std::move(message)));
    }
    std::vector<std::string> texts;
    for (int64_t text = one_of({1, 1, 2, 5}); text > 0; --text) {
      texts.push_back(Words(static_cast<int>(one_of({2, 9, 30, 100})), random));
    }
    problems.push_back(Solve(caller, EncodeMessage(texts)));
  }
  return problems;
}

Match Compare(const KnownProblem& problem, const grpc::ByteBuffer& answer) {
  const auto elements = ElementsOf(problem.method, answer);
  if (!elements.has_value() || elements->size() != problem.elements.size()) return Match::kWrong;
  if (*elements == problem.elements) return Match::kSameBytes;
  if (std::string_view(problem.method) == kAttend) return Match::kWrong;
  for (size_t i = 0; i + sizeof(float) <= elements->size(); i += sizeof(float)) {
    float got, known;
    std::memcpy(&got, elements->data() + i, sizeof(float));
    std::memcpy(&known, problem.elements.data() + i, sizeof(float));
    if (!(std::abs(got - known) <= kTolerance)) return Match::kWrong;
  }
  return Match::kClose;
}

}  // namespace castor::bench
