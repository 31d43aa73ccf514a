#include "client/load/schedule/trace.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>

#include "client/cli/command.h"
#include "tests/unit/load/seeds.h"

namespace castor::load {
namespace {

constexpr char kLine[] =
    R"({"at_us":5,"kind":"attend","sequences":[128,[64,2]],"heads":8,"head_dim":64})";

std::string TracePath() {
  return testing::TempDir() + "/castor_trace_test_" + std::to_string(getpid());
}

// The error of reading a file that holds `text`.
std::string ErrorOfTrace(const std::string& text) {
  std::ofstream(TracePath()) << text;
  std::string message;
  try {
    ReadTrace(TracePath(), [](const TraceRequest&) {});
  } catch (const cli::UsageError& error) {
    message = error.what();
  }
  std::filesystem::remove(TracePath());
  return message;
}

TEST(TraceLine, IsRead) {
  const TraceRequest request = ParseTraceLine(
      R"({"at_us":1042,"kind":"attend","sequences":[128,[64,3]],"key_sequences":[[9,4]],"heads":8,)"
      R"("head_dim":64,"value_dim":32,"dtype":"bfloat16","kernel":"improved-clustered",)"
      R"("clusters":100,"iterations":3,"bits":31,"hash_bias":false,"seed":18446744073709551615,)"
      R"("query_clustering":"query-space","topk":32,"rest_mass":"query","priority":"high",)"
      R"("deadline_ms":499.5,"news":{"from":["later"]}})");
  EXPECT_EQ(request.at_us, 1042);
  EXPECT_FALSE(request.encode);
  EXPECT_EQ(request.lengths, (std::vector<int64_t>{128, 64, 64, 64}));
  EXPECT_EQ(request.key_lengths, (std::vector<int64_t>{9, 9, 9, 9}));
  EXPECT_EQ(request.heads, 8);
  EXPECT_EQ(request.head_dim, 64);
  EXPECT_EQ(request.value_dim, 32);
  EXPECT_EQ(request.dtype, v1::BFLOAT16);
  EXPECT_EQ(request.kernel.kernel, "improved-clustered");
  EXPECT_EQ(request.kernel.clusters, 100);
  EXPECT_EQ(request.kernel.iterations, 3);
  EXPECT_EQ(request.kernel.bits, 31);
  EXPECT_FALSE(request.kernel.hash_bias);
  EXPECT_EQ(request.kernel.kernel_seed, UINT64_MAX);
  EXPECT_EQ(request.kernel.query_clustering, "query-space");
  EXPECT_EQ(request.kernel.topk, 32);
  EXPECT_EQ(request.kernel.rest_mass, "query");
  EXPECT_EQ(request.priority, v1::HIGH);
  EXPECT_EQ(request.deadline_ms, 499.5);
}

// Lines of every kind, written and read, are the same line.
TEST(TraceLine, ComesBack) {
  std::mt19937_64 random(FreshSeed());
  const auto below = [&](uint64_t bound) { return static_cast<int64_t>(random() % bound); };
  const std::vector<std::string> kernels = {"", "vanilla", "clustered", "cast", "automatic"};
  for (int i = 0; i < 5000; ++i) {
    TraceRequest request;
    request.at_us = below(uint64_t{1} << 50);
    request.encode = below(2) == 1;
    const bool bytes = request.encode && below(3) == 0;
    for (int64_t n = 1 + below(9); n > 0; --n) {
      (bytes ? request.text_bytes : request.lengths).push_back(1 + below(3));
    }
    if (below(2) == 1) request.deadline_ms = static_cast<double>(below(1'000'000)) / 7 - 100;
    request.priority = static_cast<v1::Priority>(below(4));
    request.kernel.kernel = kernels[static_cast<size_t>(below(5))];
    if (request.kernel.exact()) request.kernel.causal = below(2) == 1;
    if (request.kernel.kernel == "clustered") {
      request.kernel.clusters = static_cast<int32_t>(below(65537));
      request.kernel.kernel_seed = random();
      request.kernel.hash_bias = below(2) == 1;
      if (below(2) == 1) request.kernel.query_clustering = "query-space";
    }
    if (request.kernel.kernel == "cast") {
      request.surrogate_tokens = below(99);
      request.kernel.layer = below(2) == 1 ? "m\"/\u00e9" : "";
    }
    if (request.encode) {
      request.model = below(2) == 1 ? "mini \\ \"l\"" : "";
      request.output = static_cast<v1::EncodeOutput>(below(6));
    } else {
      if (below(3) == 0) request.key_lengths.assign(request.lengths.size(), 1 + below(1 << 20));
      request.heads = 1 + below(64);
      request.head_dim = 1 + below(256);
      request.value_dim = below(256);
      request.dtype = static_cast<v1::DataType>(1 + below(3));
    }
    const std::string line = ToTraceLine(request);
    TraceRequest parsed;
    ASSERT_NO_THROW(parsed = ParseTraceLine(line)) << line;
    ASSERT_EQ(ToTraceLine(parsed), line);
    ASSERT_EQ(parsed.lengths, request.lengths) << line;
    ASSERT_EQ(parsed.text_bytes, request.text_bytes) << line;
    ASSERT_EQ(parsed.at_us, request.at_us) << line;
    ASSERT_EQ(parsed.model, request.model) << line;
    ASSERT_EQ(parsed.deadline_ms, request.deadline_ms) << line;
    ASSERT_EQ(parsed.value_dim, request.value_dim) << line;
    ASSERT_EQ(parsed.kernel.kernel_seed, request.kernel.kernel_seed) << line;
  }
}

TEST(TraceLine, DescribesMessages) {
  v1::AttendRequest attend;
  for (const int64_t size : {192, 8, 64}) attend.mutable_query()->add_shape(size);
  for (const int64_t size : {192, 8, 64}) attend.mutable_key()->add_shape(size);
  for (const int64_t size : {192, 8, 16}) attend.mutable_value()->add_shape(size);
  attend.mutable_query()->set_dtype(v1::FLOAT16);
  attend.add_query_lengths(128);
  attend.add_query_lengths(64);
  attend.set_priority(v1::LOW);
  attend.mutable_clustered()->set_clusters(7);
  EXPECT_EQ(ToTraceLine(Describe(attend)),
            R"({"at_us":0,"kind":"attend","sequences":[128,64],"heads":8,"head_dim":64,)"
            R"("value_dim":16,"dtype":"float16","kernel":"clustered","clusters":7,)"
            R"("priority":"low"})");

  v1::AttendRequest batch;  // [batch, tokens, heads, dim], keys of another length
  for (const int64_t size : {3, 10, 2, 4}) batch.mutable_query()->add_shape(size);
  for (const int64_t size : {3, 20, 2, 4}) batch.mutable_key()->add_shape(size);
  for (const int64_t size : {3, 20, 2, 4}) batch.mutable_value()->add_shape(size);
  batch.mutable_query()->set_dtype(v1::FLOAT32);
  EXPECT_EQ(ToTraceLine(Describe(batch)),
            R"({"at_us":0,"kind":"attend","sequences":[[10,3]],"key_sequences":[[20,3]],)"
            R"("heads":2,"head_dim":4,"dtype":"float32"})");

  v1::EncodeRequest encode;
  encode.mutable_texts()->add_texts("private words");
  encode.set_output(v1::POOLED);
  EXPECT_EQ(ToTraceLine(Describe(encode)),
            R"({"at_us":0,"kind":"encode","text_bytes":[13],"output":"pooled"})");
}

TEST(ReadTrace, ReadsWhatTheWriterWrote) {
  const std::string path = TracePath();
  TraceRequest request = ParseTraceLine(kLine);
  {
    TraceWriter writer(path);
    for (int i = 0; i < 20'000; ++i) {  // over several blocks
      request.at_us = i;
      writer.Write(request);
    }
    EXPECT_TRUE(writer.Close());
  }
  int64_t next = 0;
  ReadTrace(path, [&](const TraceRequest& read) {
    ASSERT_EQ(read.at_us, next++);
    ASSERT_EQ(read.lengths, request.lengths);
  });
  EXPECT_EQ(next, 20'000);
  std::filesystem::remove(path);
}

TEST(TraceWriter, SaysWhenItCannotWrite) {
  EXPECT_THROW(TraceWriter("/nowhere/trace.jsonl"), cli::UsageError);
  TraceWriter full("/dev/full");
  full.Write(ParseTraceLine(kLine));
  EXPECT_FALSE(full.Close());
}

TEST(ReadTrace, RefusesHostileLinesAndNamesThem) {
  const auto with = [](const std::string& pair) {  // the good line with another pair, which wins
    std::string line = kLine;
    line.back() = ',';
    return line + pair + "}";
  };
  const std::pair<std::string, const char*> cases[] = {
      {"nonsense", "is no JSON"},
      {"[]", "is no JSON object"},
      {"{}", "is this a trace of castor-server --record?"},
      {R"({"begin_unix_ns":1})", "is this a trace"},
      {std::string(200'000, '['), "is no JSON"},
      {std::string(300'000, ' '), "is longer than 256 KiB"},
      {std::string(5'000'000, 'x'), "is longer than 256 KiB"},
      {std::string("{\"at_us\":1,\0", 12), "is no JSON"},
      {"{\"at_us\":1,\"kind\":\"\xff\xfe\"}", "is no JSON"},
      {with(R"("at_us":-1)"), "\"at_us\" must be a whole number from 0 to"},
      {with(R"("at_us":1.5)"), "\"at_us\" must be"},
      {with(R"("at_us":18446744073709551615)"), "\"at_us\" must be"},
      {with(R"("at_us":1e999)"), "is no JSON"},
      {with(R"("kind":"look")"), "\"kind\" must be one of attend, encode"},
      {with(R"("sequences":[])"), "\"sequences\" must be an array"},
      {with(R"("sequences":[0])"), "must be a whole number from 1 to 1048576"},
      {with(R"("sequences":[1048577])"), "must be a whole number"},
      {with(R"("sequences":[[1,4097]])"), "must be a whole number from 1 to 4096"},
      {with(R"("sequences":[[1,4096],1])"), "\"sequences\" must be an array of 1 to 4096"},
      {with(R"("sequences":[[1,2,3]])"), "\"sequences\" must be an array"},
      {with(R"("sequences":["1"])"), "must be a whole number"},
      {with(R"("sequences":7)"), "\"sequences\" must be an array"},
      {with(R"("key_sequences":[1])"), "as many as \"sequences\""},
      {with(R"("heads":0)"), "\"heads\" must be"},
      {with(R"("heads":99999999999)"), "\"heads\" must be"},
      {with(R"("dtype":"int64")"), "\"dtype\" must be one of float32, float16, bfloat16"},
      {with(R"("kernel":"fast")"), "\"kernel\" must be one of vanilla"},
      {with(R"("clusters":0)"), "\"clusters\" must be"},
      {with(R"("seed":-1)"), "\"seed\" must be"},
      {with(R"("causal":1)"), "\"causal\" must be true or false"},
      {with(R"("priority":"urgent")"), "\"priority\" must be one of low, normal, high"},
      {with(R"("deadline_ms":"soon")"), "\"deadline_ms\" must be a number"},
      {with(R"("deadline_ms":1e300)"), "\"deadline_ms\" must be a number"},
      {with("\"layer\":\"" + std::string(300, 'x') + "\""), "a string of at most 256 bytes"},
      {R"({"at_us":1,"kind":"attend","sequences":[1]})", "an attend needs \"heads\""},
      {R"({"at_us":1,"kind":"encode"})", "needs \"sequences\""},
      {R"({"at_us":1,"kind":"encode","sequences":[1],"text_bytes":[1]})", "needs \"sequences\""}};
  for (const auto& [line, why] : cases) {
    const std::string message = ErrorOfTrace(std::string(kLine) + "\n\n" + line + "\n" + kLine);
    EXPECT_TRUE(message.starts_with("line 3 of ")) << line.substr(0, 200) << "\n" << message;
    EXPECT_NE(message.find(why), std::string::npos) << line.substr(0, 200) << "\n" << message;
    EXPECT_NE(message.find(TracePath()), std::string::npos) << message;
  }
}

TEST(ReadTrace, RefusesFilesWithoutRequests) {
  EXPECT_NE(ErrorOfTrace("").find("holds no requests"), std::string::npos);
  EXPECT_NE(ErrorOfTrace("\n\r\n").find("holds no requests"), std::string::npos);
  EXPECT_THROW(ReadTrace("/nowhere", [](const TraceRequest&) {}), cli::UsageError);
  EXPECT_THROW(ReadTrace("/dev/zero", [](const TraceRequest&) {}), cli::UsageError);
}

}  // namespace
}  // namespace castor::load
