#include "server/record/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "server/record/trace_line.h"
#include "tests/support/fake_engine.h"

namespace castor::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using ::testing::HasSubstr;

constexpr int64_t kMuch = int64_t{1} << 30;

class RecorderTest : public ::testing::Test {
 protected:
  RecorderTest() {
    std::string pattern = ::testing::TempDir() + "castor-recorder-XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ + "/requests.jsonl";
  }
  ~RecorderTest() override { std::filesystem::remove_all(folder_); }

  std::string Recorded() const {
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }

  double Dropped() const {
    const std::string page = metrics_.Page();
    const std::string name = "\ncastor_record_dropped_total ";
    const size_t at = page.find(name);
    return at == std::string::npos ? -1 : std::strtod(page.c_str() + at + name.size(), nullptr);
  }

  // Until it ends by itself; false after 20 s.
  static bool AwaitOff(const Recorder& recorder) {
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (recorder.on() && std::chrono::steady_clock::now() < patience) std::this_thread::yield();
    return !recorder.on();
  }

  FakeEngine engine_;
  Metrics metrics_{engine_};
  std::string folder_, path_;
};

TEST_F(RecorderTest, WritesWhatIsAddedToAFileOfItsOwner) {
  {
    Recorder recorder(metrics_);
    EXPECT_FALSE(recorder.on());
    recorder.Add("before\n");
    ASSERT_TRUE(recorder.Start(path_, kMuch).ok());
    EXPECT_TRUE(recorder.on());
    recorder.Add("one\n");
    recorder.Add("two\n");
  }
  EXPECT_EQ(Recorded(), "one\ntwo\n");
  struct stat about {};
  ASSERT_EQ(stat(path_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600U);
  EXPECT_EQ(Dropped(), 0);
}

TEST_F(RecorderTest, TakesAnEmptyFileAndRefusesOthers) {
  std::ofstream(path_).close();
  EXPECT_TRUE(Recorder(metrics_).Start(path_, kMuch).ok());

  std::ofstream(path_) << "precious";
  const absl::Status full = Recorder(metrics_).Start(path_, kMuch);
  EXPECT_THAT(std::string(full.message()), HasSubstr(path_));
  EXPECT_THAT(std::string(full.message()), HasSubstr("never overwritten"));
  EXPECT_EQ(Recorded(), "precious");

  const std::string pipe = folder_ + "/pipe", link = folder_ + "/link";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink(folder_ + "/elsewhere", link);
  for (const std::string& path :
       {pipe, link, folder_, folder_ + "/no/file", std::string("/dev/full")}) {
    EXPECT_FALSE(Recorder(metrics_).Start(path, kMuch).ok()) << path;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/elsewhere"));
}

TEST_F(RecorderTest, EndsWithAWholeLineAtItsBound) {
  for (const int64_t most : {3, 4, 11, 12}) {  // lines of 4 bytes
    std::filesystem::remove(path_);
    Recorder recorder(metrics_);
    ASSERT_TRUE(recorder.Start(path_, most).ok());
    for (int i = 0; i < 4; ++i) recorder.Add("abc\n");
    ASSERT_TRUE(AwaitOff(recorder));
    recorder.Add("late\n");
    EXPECT_EQ(Recorded().size(), static_cast<size_t>(most / 4 * 4)) << most;
  }
}

TEST_F(RecorderTest, EndsWhenTheFileCannotBeWritten) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);  // as the server does
  rlimit small = before;
  small.rlim_cur = 4096;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  {
    Recorder recorder(metrics_);
    ASSERT_TRUE(recorder.Start(path_, kMuch).ok());
    recorder.Add(std::string(10'000, 'x') + "\n");
    EXPECT_TRUE(AwaitOff(recorder));
    recorder.Add("late\n");
  }
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(std::filesystem::file_size(path_), 4096U);
}

// Many threads at a time, faster than the disk perhaps: each line is written whole, once, or
// counted as dropped.
TEST_F(RecorderTest, WritesOrCountsEveryLine) {
  constexpr int kThreads = 4, kLines = 20'000;
  {
    Recorder recorder(metrics_);
    ASSERT_TRUE(recorder.Start(path_, kMuch).ok());
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&recorder, t] {
        for (int i = 0; i < kLines; ++i) {
          recorder.Add(std::to_string(t) + std::string(500, 'x') + "\n");
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    recorder.Add(std::string(200'000, 'y') + "\n");  // no request is that long
  }
  int64_t lines = 0;
  std::ifstream file(path_);
  for (std::string line; std::getline(file, line); ++lines) {
    ASSERT_EQ(line.size(), 501U);
    ASSERT_EQ(line.substr(1), std::string(500, 'x'));
  }
  EXPECT_GE(Dropped(), 1);
  EXPECT_EQ(static_cast<double>(lines) + Dropped(), kThreads * kLines + 1);
}

AttentionRequest Attend(std::vector<int64_t> query) {
  AttentionRequest request;
  request.query = {.dtype = DType::kFloat32, .shape = query, .pieces = {}};
  request.key = request.value = request.query;
  return request;
}

template <typename Request>
std::string LineOf(const Request& request, const std::vector<int64_t>* token_counts = nullptr) {
  TraceLine line;
  line.Begin(request, nanoseconds(1'042'999), milliseconds(500));
  return line.empty() ? "" : line.Finish(token_counts);
}

TEST(TraceLine, SaysHowLargeAnAttendIs) {
  EXPECT_EQ(LineOf(Attend({128, 8, 64})),
            R"({"at_us":1042,"kind":"attend","deadline_ms":500,"sequences":[128],"heads":8,)"
            R"("head_dim":64,"dtype":"float32","kernel":"vanilla"})"
            "\n");
  AttentionRequest request = Attend({4, 128, 8, 64});
  request.key.shape[1] = request.value.shape[1] = 77;
  request.value.shape[3] = 32;
  request.query.dtype = DType::kBFloat16;
  request.call.priority = Priority::kHigh;
  request.call.request_id = "secret-id";
  request.call.tenant = "secret-tenant";
  ImprovedClustered kernel;
  kernel.seed = UINT64_MAX;
  kernel.hash_bias = false;
  request.kernel = kernel;
  EXPECT_EQ(LineOf(request),
            R"({"at_us":1042,"kind":"attend","deadline_ms":500,"priority":"high",)"
            R"("sequences":[[128,4]],"key_sequences":[[77,4]],"heads":8,"head_dim":64,)"
            R"("value_dim":32,"dtype":"bfloat16","kernel":"improved-clustered","clusters":100,)"
            R"("iterations":10,"bits":63,"hash_bias":false,"seed":18446744073709551615,"topk":32})"
            "\n");
  kernel = {};
  kernel.clustering = Clustered::Clustering::kQuerySpace;
  kernel.rest_mass = ImprovedClustered::RestMass::kQuery;
  kernel.iterations = 2;
  request = Attend({9, 1, 2});
  request.kernel = kernel;
  EXPECT_EQ(LineOf(request),
            R"({"at_us":1042,"kind":"attend","deadline_ms":500,"sequences":[9],"heads":1,)"
            R"("head_dim":2,"dtype":"float32","kernel":"improved-clustered","clusters":100,)"
            R"("iterations":2,"query_clustering":"query-space","topk":32,"rest_mass":"query"})"
            "\n");
  AttentionRequest ragged = Attend({10, 1, 2});
  ragged.query_lengths = {3, 3, 4};
  Cast cast;
  cast.surrogates = std::string("model/3");
  cast.cluster_size = 5;
  ragged.kernel = cast;
  EXPECT_EQ(LineOf(ragged),
            R"({"at_us":1042,"kind":"attend","deadline_ms":500,"sequences":[[3,2],4],"heads":1,)"
            R"("head_dim":2,"dtype":"float32","kernel":"cast","cluster_size":5,"layer":"model/3"})"
            "\n");
}

TEST(TraceLine, SaysTheTokensOfTextsOnceTheyAreKnown) {
  EncodeRequest request;
  request.model = "mini-l6";
  request.output = EncodeOutput::kTokenEmbeddings;
  request.input = TextInput{.texts = {"private", "words"}, .pairs = {}};
  const std::string begin = R"({"at_us":1042,"kind":"encode","deadline_ms":500,"model":"mini-l6",)"
                            R"("output":"token-embeddings")";
  const std::vector<int64_t> tokens = {3, 4};
  EXPECT_EQ(LineOf(request, &tokens), begin + ",\"sequences\":[3,4]}\n");
  for (const auto& [output, name] :
       {std::pair{EncodeOutput::kPooled, "pooled"}, std::pair{EncodeOutput::kLogits, "logits"},
        std::pair{EncodeOutput::kScores, "scores"}, std::pair{EncodeOutput::kSparse, "sparse"}}) {
    request.output = output;
    EXPECT_NE(LineOf(request).find(std::string(R"("output":")") + name + '"'), std::string::npos);
  }
  request.output = EncodeOutput::kTokenEmbeddings;
  EXPECT_EQ(LineOf(request), begin + ",\"text_bytes\":[7,5]}\n");
  request.input = TokenInput{.ids = {1, 2, 3}, .type_ids = {}, .lengths = {}};
  EXPECT_EQ(LineOf(request, &tokens), begin + ",\"sequences\":[3]}\n");
  EmbeddingInput embeddings;
  embeddings.values.shape = {9, 16};
  embeddings.lengths = {4, 5};
  request.input = embeddings;
  EXPECT_EQ(LineOf(request), begin + ",\"sequences\":[4,5]}\n");
}

// Whatever a caller sends, the line is one line of JSON, or none.
TEST(TraceLine, TakesNothingThatACallerMadeUp) {
  EncodeRequest encode;
  encode.input = TokenInput{.ids = {1}, .type_ids = {}, .lengths = {}};
  for (const std::string& model : {std::string("a\"b"), std::string("a\nb"), std::string(200, 'a'),
                                   std::string("\xff"), std::string("a b")}) {
    encode.model = model;
    EXPECT_EQ(LineOf(encode).find("model"), std::string::npos);
  }
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{},
                                                                             {1},
                                                                             {1, 2},
                                                                             {1, 2, 3, 4, 5},
                                                                             {-1, 2, 3},
                                                                             {1, 0, 3},
                                                                             {1, 2, INT64_MAX},
                                                                             {INT64_MAX, 2, 3},
                                                                             {INT64_MAX, 1, 2, 3},
                                                                             {-1, 1, 2, 3},
                                                                             {0, 1, 2, 3},
                                                                             {5000, 1, 2, 3}}) {
    EXPECT_EQ(LineOf(Attend(shape)), "");
  }
  AttentionRequest lengths = Attend({4, 1, 2});
  lengths.query_lengths = {INT64_MIN, 4};
  EXPECT_EQ(LineOf(lengths), "");
  lengths.query_lengths.assign(5000, 1);
  EXPECT_EQ(LineOf(lengths), "");
  lengths.query_lengths = {2, 2};
  lengths.key_lengths = {4};
  EXPECT_EQ(LineOf(lengths), "");
  encode.input = TextInput{};
  EXPECT_EQ(LineOf(encode), "");
  encode.input = TokenInput{};
  EXPECT_EQ(LineOf(encode), "");
}

}  // namespace
}  // namespace castor::server
