#include "tests/bench/load/requests.h"

#include <array>
#include <string_view>

#include "tests/bench/workload.h"

namespace castor::bench {
namespace {

constexpr std::array<std::string_view, 48> kWords = {
    "the",    "beaver", "river",  "stone",   "builds",  "under",  "winter", "light",
    "old",    "bridge", "market", "quietly", "carries", "water",  "people", "morning",
    "before", "garden", "letter", "opened",  "seven",   "window", "across", "mountain",
    "and",    "paper",  "engine", "listens", "between", "forest", "silver", "question",
    "of",     "house",  "answer", "because", "table",   "small",  "north",  "evening",
    "in",     "tree",   "dam",    "without", "story",   "music",  "road",   "interest"};

int64_t Between(int64_t low, int64_t high, std::mt19937_64& random) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

}  // namespace

v1::AttendRequest AttendMessage(const AttendSize& size, uint64_t seed) {
  const AttentionProblem problem(size.tokens, size.heads, size.head_dim, DType::kFloat32, seed);
  v1::AttendRequest request;
  for (const auto& [tensor, bytes] : {std::pair{request.mutable_query(), &problem.query},
                                      std::pair{request.mutable_key(), &problem.key},
                                      std::pair{request.mutable_value(), &problem.value}}) {
    tensor->set_dtype(v1::FLOAT32);
    for (int64_t dimension : {size.tokens, size.heads, size.head_dim}) {
      tensor->add_shape(dimension);
    }
    tensor->set_raw(bytes->data(), bytes->size());
  }
  return request;
}

v1::EncodeRequest EncodeMessage(const std::vector<std::string>& texts) {
  v1::EncodeRequest request;
  for (const std::string& text : texts) request.mutable_texts()->add_texts(text);
  return request;
}

std::string Words(int count, std::mt19937_64& random) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    if (i > 0) text += ' ';
    text += kWords[Between(0, kWords.size() - 1, random)];
  }
  return text;
}

std::string WordsOfBytes(size_t bytes, std::mt19937_64& random) {
  std::string text;
  text.reserve(bytes + 16);
  while (text.size() < bytes) {
    text += kWords[Between(0, kWords.size() - 1, random)];
    text += ' ';
  }
  text.resize(bytes);
  return text;
}

std::string LatinLetters(size_t bytes, std::mt19937_64& random) {
  std::string text(bytes, 'a');
  for (char& letter : text) letter = static_cast<char>('a' + Between(0, 25, random));
  return text;
}

std::string ThaiLetters(size_t bytes, std::mt19937_64& random) {
  std::string text;
  text.reserve(bytes);
  while (text.size() + 3 <= bytes) {
    text += "\xE0\xB8";  // U+0E01 to U+0E2E, the consonants
    text += static_cast<char>(0x81 + Between(0, 0x2D, random));
  }
  return text;
}

grpc::ByteBuffer BytesOf(const google::protobuf::Message& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

std::vector<grpc::ByteBuffer> ShortAttends(int count, uint64_t seed) {
  std::vector<grpc::ByteBuffer> requests;
  uint64_t problem = seed;
  for (const int64_t tokens : MixedLengths(count, 64, 512, seed)) {
    requests.push_back(
        BytesOf(AttendMessage({.tokens = tokens, .heads = 4, .head_dim = 64}, ++problem)));
  }
  return requests;
}

std::vector<grpc::ByteBuffer> ShortTexts(int count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<grpc::ByteBuffer> requests;
  for (int i = 0; i < count; ++i) {
    const int words = static_cast<int>(Between(8, 20, random));
    requests.push_back(BytesOf(EncodeMessage({Words(words, random)})));
  }
  return requests;
}

}  // namespace castor::bench
