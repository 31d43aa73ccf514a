// Against parsing all of the answer, on random ones.

#include "client/load/target/answer_reader.h"

#include <gtest/gtest.h>

#include <random>

#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"

namespace castor::load {
namespace {

template <typename Response>
Response RandomAnswer(std::mt19937_64& random) {
  std::uniform_real_distribution<double> us(0, 1e5);
  Response response;
  response.set_request_id(std::string(random() % 20, 'r'));
  response.mutable_output()->add_shape(static_cast<int64_t>(random() % 1000));
  response.mutable_output()->set_raw(std::string(random() % 500, '\x1a'));
  response.mutable_kernel()->set_name(static_cast<v1::KernelName>(random() % 5));
  response.mutable_kernel()->set_predicted_us(us(random));
  response.mutable_kernel()->set_measured_us(us(random));
  v1::Timing& timing = *response.mutable_timing();
  timing.set_decode_us(us(random));
  timing.set_queue_us(us(random));
  timing.set_copy_in_us(us(random));
  timing.set_compute_us(us(random));
  timing.set_copy_out_us(us(random));
  timing.set_total_us(us(random));
  response.mutable_batch()->set_requests(3);
  return response;
}

template <typename Response>
void ExpectFacts(const Response& response, const AnswerFacts& facts) {
  EXPECT_TRUE(facts.readable);
  EXPECT_TRUE(facts.timed);
  EXPECT_EQ(facts.decode_us, response.timing().decode_us());
  EXPECT_EQ(facts.queue_us, response.timing().queue_us());
  EXPECT_EQ(facts.copy_in_us, response.timing().copy_in_us());
  EXPECT_EQ(facts.compute_us, response.timing().compute_us());
  EXPECT_EQ(facts.copy_out_us, response.timing().copy_out_us());
  EXPECT_EQ(facts.total_us, response.timing().total_us());
  EXPECT_EQ(facts.predicted_us, response.kernel().predicted_us());
  EXPECT_EQ(facts.measured_us, response.kernel().measured_us());
  EXPECT_EQ(facts.kernel.empty(), response.kernel().name() == v1::KERNEL_NAME_UNSPECIFIED);
}

TEST(AnswerReaderTest, ReadsWhatParsingAllOfItReads) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 200; ++i) {
    const auto attend = RandomAnswer<v1::AttendResponse>(random);
    ExpectFacts(attend, ReadAttendAnswer(attend.SerializeAsString()));

    auto encode = RandomAnswer<v1::EncodeResponse>(random);
    int64_t tokens = 0;
    for (uint64_t n = random() % 50; n > 0; --n) {
      encode.add_token_counts(static_cast<int64_t>(random() % 1'000'000));
      tokens += encode.token_counts(encode.token_counts_size() - 1);
    }
    const AnswerFacts facts = ReadEncodeAnswer(encode.SerializeAsString());
    ExpectFacts(encode, facts);
    EXPECT_EQ(facts.tokens, tokens);
  }
}

TEST(AnswerReaderTest, WhatIsCutOrForeignIsNotReadable) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const std::string whole = RandomAnswer<v1::AttendResponse>(random).SerializeAsString();
  v1::AttendResponse parsed;
  int refused = 0;
  for (size_t size = 1; size < whole.size(); ++size) {
    const std::string cut = whole.substr(0, size);
    const bool readable = ReadAttendAnswer(cut).readable;
    EXPECT_EQ(readable, parsed.ParseFromString(cut)) << size;
    refused += readable ? 0 : 1;
  }
  EXPECT_GT(refused, 0);
  for (int i = 0; i < 2000; ++i) {
    std::string noise(1 + random() % 60, '\0');
    for (char& c : noise) c = static_cast<char>(random());
    (void)ReadAttendAnswer(noise);  // ends, with whatever result
    (void)ReadEncodeAnswer(noise);
  }
}

TEST(AnswerReaderTest, AnEmptyMessageIsAnAnswerWithoutTimes) {
  const AnswerFacts facts = ReadAttendAnswer("");
  EXPECT_TRUE(facts.readable);
  EXPECT_FALSE(facts.timed);
}

}  // namespace
}  // namespace castor::load
