#include "client/load/verify/references.h"

#include <gtest/gtest.h>

#include <cmath>

#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"
#include "client/tensor.h"

namespace castor::load {
namespace {

template <typename Response>
std::string AnswerOf(const std::vector<float>& values, std::vector<int64_t> shape) {
  Response response;
  *response.mutable_output() = client::MakeTensor(values, shape);
  return response.SerializeAsString();
}

ClassSpec AttendClass() {
  ClassSpec spec;
  spec.name = "attend";
  spec.call = AttendSpec{.lengths = FixedLength{1}, .heads = 1, .head_dim = 4};
  spec.payloads = 1;
  return spec;
}

TEST(ReferencesTest, AnAttentionMustHaveTheSameBytes) {
  const auto protocol = MakeCastorProtocol({});
  const ClassSpec spec = AttendClass();
  const Payload payload = protocol->MakePayloads(spec, 1).front();
  References references(*protocol);
  const auto answer = [](float x) { return AnswerOf<v1::AttendResponse>({x, 1, 2, 3}, {1, 1, 4}); };
  references.Add(spec, 0, 1, payload, answer(1));
  EXPECT_EQ(references.Compare(0, 0, payload, answer(1)), Match::kEqual);
  EXPECT_EQ(references.Compare(0, 0, payload, answer(std::nextafter(1.F, 2.F))), Match::kDifferent);
  EXPECT_EQ(references.Compare(0, 0, payload, "\xff"), Match::kDifferent);
}

// With one key, attention is its value.
TEST(ReferencesTest, TheErrorIsThatOfExactAttention) {
  const auto protocol = MakeCastorProtocol({});
  const ClassSpec spec = AttendClass();
  const Payload payload = protocol->MakePayloads(spec, 1).front();
  v1::AttendRequest request;
  ASSERT_TRUE(request.ParseFromString(payload.message));
  std::vector<float> value = *client::ToFloats(request.value());
  References references(*protocol);
  references.Add(spec, 0, 1, payload, AnswerOf<v1::AttendResponse>(value, {1, 1, 4}));
  EXPECT_EQ(references.ExactError(0, 0), 0);
  for (float& v : value) v *= 1.5F;
  references.Add(spec, 0, 1, payload, AnswerOf<v1::AttendResponse>(value, {1, 1, 4}));
  // The second payload is not that request: what can be said is that the error is not zero.
  EXPECT_GT(references.ExactError(0, 1), 0.1);
}

TEST(ReferencesTest, AnEmbeddingMayDifferByRounding) {
  const auto protocol = MakeCastorProtocol({});
  ClassSpec spec;
  spec.name = "encode";
  spec.call = EncodeSpec{};
  spec.payloads = 1;
  const Payload payload = protocol->MakePayloads(spec, 1).front();
  References references(*protocol);
  const auto answer = [](float x) { return AnswerOf<v1::EncodeResponse>({x, 0.5F}, {1, 2}); };
  references.Add(spec, 0, 1, payload, answer(0.5F));
  EXPECT_EQ(references.Compare(0, 0, payload, answer(0.5F)), Match::kEqual);
  EXPECT_EQ(references.Compare(0, 0, payload, answer(0.50001F)), Match::kEqual);
  EXPECT_EQ(references.Compare(0, 0, payload, answer(0.51F)), Match::kDifferent);
  EXPECT_EQ(references.Compare(0, 0, payload, answer(NAN)), Match::kDifferent);
  EXPECT_LT(references.ExactError(0, 0), 0);  // nobody here can tell
}

}  // namespace
}  // namespace castor::load
