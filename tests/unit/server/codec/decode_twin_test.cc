// The request decoders against protobuf's parser, on whole families of bytes: the same messages,
// and the same refusals, however the bytes are cut into slices.

#include <functional>
#include <string>

#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"
#include "gtest/gtest.h"
#include "server/codec/attention_codec.h"
#include "server/codec/encoder_codec.h"
#include "server/codec/rerank_codec.h"
#include "tests/support/sanitizer.h"
#include "tests/support/seeded.h"
#include "tests/unit/server/codec/random_wire.h"
#include "tests/unit/server/codec/twin.h"

namespace castor::server::twin {
namespace {

// Messages that are changed at random.
constexpr int kMany = kSanitized ? 1500 : 20000;

// How a method's bytes are decoded, and as which message.
struct Attend {
  using Ours = wire::AttendRequest;
  using Theirs = v1::AttendRequest;
  static absl::Status Decode(const grpc::ByteBuffer& bytes) {
    DecodedAttend out;
    return DecodeAttendRequest(bytes, Regions(), &out);
  }
};
struct Encode {
  using Ours = wire::EncodeRequest;
  using Theirs = v1::EncodeRequest;
  static absl::Status Decode(const grpc::ByteBuffer& bytes) {
    DecodedEncode out;
    return DecodeEncodeRequest(bytes, Regions(), &out);
  }
};
struct Rerank {
  using Ours = wire::RerankRequest;
  using Theirs = v1::RerankRequest;
  static absl::Status Decode(const grpc::ByteBuffer& bytes) {
    DecodedRerank out;
    return DecodeRerankRequest(bytes, Regions(), {}, &out);
  }
};
struct Tokenize {
  using Ours = wire::TokenizeRequest;
  using Theirs = v1::TokenizeRequest;
  static absl::Status Decode(const grpc::ByteBuffer& bytes) {
    DecodedEncode out;
    return DecodeTokenizeRequest(bytes, Regions(), &out);
  }
};

std::string Hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const char byte : bytes) {
    out += kDigits[static_cast<uint8_t>(byte) >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

template <typename Method>
class DecodeTwinTest : public ::testing::Test {
 protected:
  DecodeTwinTest() : seed_(TestSeed()), random_(seed_) { std::printf("seed %u\n", seed_); }

  std::string DrawMessage() {
    typename Method::Theirs message;
    Fill(random_, &message);
    return message.SerializeAsString();
  }

  // Whether the decoder accepted the bytes; fails the test when the two differ.
  bool Check(const std::string& bytes) {
    const Comparison comparison = Compare<typename Method::Ours, typename Method::Theirs>(
        bytes, DrawSlices(random_, bytes.size()), Method::Decode);
    EXPECT_EQ(comparison.difference, "") << "seed " << seed_ << ", bytes " << Hex(bytes);
    return comparison.accepted;
  }

  // Checks `count` random messages, each changed by `change`; returns how many were accepted.
  int CheckMany(int count, const std::function<std::string(const std::string&)>& change) {
    int accepted = 0;
    for (int i = 0; i < count && !this->HasFailure(); ++i) accepted += Check(change(DrawMessage()));
    return accepted;
  }

  const unsigned seed_;
  Random random_;
};

using Methods = ::testing::Types<Attend, Encode, Rerank, Tokenize>;
TYPED_TEST_SUITE(DecodeTwinTest, Methods);

TYPED_TEST(DecodeTwinTest, Valid) {
  EXPECT_GT(this->CheckMany(3000, [](const std::string& bytes) { return bytes; }), 2999);
}

TYPED_TEST(DecodeTwinTest, Empty) { EXPECT_TRUE(this->Check("")); }

TYPED_TEST(DecodeTwinTest, TruncatedAtEveryByte) {
  for (int i = 0; i < 15; ++i) {
    const std::string bytes = this->DrawMessage();
    for (size_t size = 0; size <= bytes.size(); ++size) this->Check(bytes.substr(0, size));
  }
}

TYPED_TEST(DecodeTwinTest, Reordered) {
  EXPECT_GT(this->CheckMany(
                2000, [&](const std::string& bytes) { return Reorder(this->random_, bytes); }),
            1900);
}

// Concatenated messages merge: every field comes twice, some oneofs with another case.
TYPED_TEST(DecodeTwinTest, Duplicated) {
  EXPECT_GT(
      this->CheckMany(2000, [&](const std::string& bytes) { return bytes + this->DrawMessage(); }),
      200);
}

TYPED_TEST(DecodeTwinTest, DuplicatedAndReordered) {
  EXPECT_GT(this->CheckMany(2000,
                            [&](const std::string& bytes) {
                              return Reorder(this->random_, bytes + this->DrawMessage());
                            }),
            50);
}

TYPED_TEST(DecodeTwinTest, UnknownFields) {
  EXPECT_GT(
      this->CheckMany(
          2000, [&](const std::string& bytes) { return AddUnknownFields(this->random_, bytes); }),
      200);
}

TYPED_TEST(DecodeTwinTest, FlippedBytes) {
  const int accepted = this->CheckMany(
      kMany, [&](const std::string& bytes) { return FlipBytes(this->random_, bytes); });
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, kMany);
}

TYPED_TEST(DecodeTwinTest, RandomBytes) {
  for (int i = 0; i < kMany; ++i) {
    std::string bytes(static_cast<size_t>(Draw(this->random_, 0, 30)), '\0');
    for (char& byte : bytes) byte = static_cast<char>(this->random_());
    this->Check(bytes);
  }
}

// Tags, values and lengths of every size, padded with bytes that add nothing, also beyond the
// allowed length.
TYPED_TEST(DecodeTwinTest, OverlongVarints) {
  for (uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{5}, uint64_t{300}, ~uint64_t{0}}) {
    for (int bytes = 1; bytes <= 12; ++bytes) {
      const std::string padded = PaddedVarint(value, bytes);
      for (uint32_t number = 1; number <= 18; ++number) {
        this->Check(FieldTag(number, 0) + padded);
        this->Check(FieldTag(number, 2) + padded + "\x08\x01\x08\x01\x08");
        this->Check(LengthField(number, FieldTag(1, 0) + padded));
        this->Check(LengthField(number, LengthField(2, padded)));
        this->Check(PaddedVarint(uint64_t{number} << 3, bytes) + "\x01");
        this->Check(PaddedVarint(value << 3 | number, bytes) + "\x01");
      }
    }
  }
}

TYPED_TEST(DecodeTwinTest, MaliciousLengths) {
  const uint64_t lengths[] = {1,
                              3,
                              127,
                              uint64_t{1} << 31,
                              (uint64_t{1} << 31) - 1,
                              (uint64_t{1} << 31) - 17,
                              uint64_t{1} << 32,
                              (uint64_t{1} << 32) + 2,
                              (uint64_t{1} << 35) - 1,
                              (uint64_t{1} << 63) - 1,
                              uint64_t{1} << 63,
                              ~uint64_t{0} - 1,
                              ~uint64_t{0}};
  for (uint64_t length : lengths) {
    for (uint32_t outer = 1; outer <= 40; ++outer) {
      EXPECT_FALSE(this->Check(FieldTag(outer, 2) + Varint(length)));
      for (uint32_t inner = 1; inner <= 6; ++inner) {
        // Longer than the message around it, then the same with more bytes after that message.
        const std::string nested = LengthField(outer, FieldTag(inner, 2) + Varint(length));
        this->Check(nested);
        this->Check(nested + LengthField(40, std::string(200, 'x')));
      }
    }
  }
}

TYPED_TEST(DecodeTwinTest, Groups) {
  const std::string good = FieldTag(20, 3) + FieldTag(1, 0) + Varint(7) + FieldTag(20, 4);
  const std::string cases[] = {
      good,
      FieldTag(20, 3),                                      // no end
      FieldTag(20, 4),                                      // no begin
      FieldTag(20, 3) + FieldTag(21, 4),                    // another's end
      FieldTag(20, 3) + FieldTag(21, 3) + FieldTag(20, 4),  // crossed
      FieldTag(20, 3) + good + FieldTag(20, 4),             // nested
      FieldTag(20, 3) + LengthField(1, FieldTag(20, 4)),    // the end is inside a field
      FieldTag(0, 3) + FieldTag(0, 4),                      // field number 0
      FieldTag(20, 3) + std::string(1, '\0'),               // a tag of 0 inside
      FieldTag(20, 3) + FieldTag(3, 6) + FieldTag(20, 4),   // no such wire type
      FieldTag(2, 3) + FieldTag(2, 4),                      // a known field number
  };
  for (const std::string& bytes : cases) {
    this->Check(bytes);
    for (uint32_t number = 1; number <= 17; ++number) {
      this->Check(LengthField(number, bytes));
      this->Check(this->DrawMessage() + LengthField(number, LengthField(1, bytes)));
      this->Check(LengthField(number, bytes.substr(0, 2)) + bytes.substr(2));
    }
  }
}

TYPED_TEST(DecodeTwinTest, Nesting) {
  const std::string message = this->DrawMessage();
  for (int depth : {1, 98, 99, 100, 101, 102, 5000}) {
    std::string begins;
    std::string ends;
    for (int i = 0; i < depth; ++i) {
      begins += FieldTag(20, 3);
      ends += FieldTag(20, 4);
    }
    this->Check(begins + ends + message);
    // Messages count too: these groups are two levels deep.
    for (uint32_t number = 1; number <= 17; ++number) {
      this->Check(LengthField(number, LengthField(1, begins + ends)));
    }
    this->Check(begins);
  }
}

}  // namespace
}  // namespace castor::server::twin
