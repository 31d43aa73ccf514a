// The requests that the scenarios send, as messages and as bytes built once.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"

namespace castor::bench {

inline constexpr char kAttend[] = "/castor.v1.AttentionService/Attend";
inline constexpr char kEncode[] = "/castor.v1.EncoderService/Encode";

struct AttendSize {
  int64_t tokens = 16;
  int64_t heads = 4;
  int64_t head_dim = 32;
};

// Exact self-attention over one sequence of Gaussian float32.
v1::AttendRequest AttendMessage(const AttendSize& size, uint64_t seed);

// Embeddings of texts, by the only model.
v1::EncodeRequest EncodeMessage(const std::vector<std::string>& texts);

// A text of so many English words.
std::string Words(int count, std::mt19937_64& random);

// A text of so many bytes: words, or Latin letters without a space. Thai ones, of three bytes each,
// may end up to two bytes before.
std::string WordsOfBytes(size_t bytes, std::mt19937_64& random);
std::string LatinLetters(size_t bytes, std::mt19937_64& random);
std::string ThaiLetters(size_t bytes, std::mt19937_64& random);

// Sending these bytes again copies nothing.
grpc::ByteBuffer BytesOf(const google::protobuf::Message& message);

// `count` of each, with sizes drawn from the seed.
std::vector<grpc::ByteBuffer> ShortAttends(int count, uint64_t seed);  // 64 to 512 tokens
std::vector<grpc::ByteBuffer> ShortTexts(int count, uint64_t seed);    // 8 to 20 words

}  // namespace castor::bench
