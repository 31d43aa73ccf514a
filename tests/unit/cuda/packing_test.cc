#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/device/cuda/launch/launch_work.h"
#include "engine/device/cuda/launch/pieces.h"
#include "engine/device/cuda/packing/packed_offsets.h"
#include "tests/support/attention/random_problem.h"
#include "tests/support/attention/spec.h"
#include "tests/support/seeded.h"

namespace castor {
namespace {

using attention::MakeSpec;
using attention::OwnedProblem;
using attention::Problem;
using attention::Spec;

constexpr int32_t kMost = std::numeric_limits<int32_t>::max();

attention::Spec SmallSpec() {
  attention::Spec spec;
  spec.heads = spec.kv_heads = 2;
  spec.head_dim = 4;
  spec.value_dim = 3;
  return spec;
}

attention::Problem Dense(const std::vector<int32_t>& cu_q, const std::vector<int32_t>& cu_k) {
  attention::Problem problem;
  problem.query_stride = problem.key_stride = 8;
  problem.value_stride = problem.output_stride = 6;
  problem.cu_seqlens_q = cu_q;
  problem.cu_seqlens_k = cu_k;
  return problem;
}

TEST(PackedOffsetsTest, RequestsFollowOneAnother) {
  const std::vector<int32_t> q1 = {0, 3, 5}, k1 = {0, 1, 9}, q2 = {0, 4}, k2 = {0, 2};
  const std::vector<attention::Problem> requests = {Dense(q1, k1), Dense(q2, k2)};
  const auto packed = PackOffsets(SmallSpec(), requests);
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ(packed->cu_seqlens_q, (std::vector<int32_t>{0, 3, 5, 9}));
  EXPECT_EQ(packed->cu_seqlens_k, (std::vector<int32_t>{0, 1, 9, 11}));
}

TEST(PackedOffsetsTest, OffsetsStayInInt32) {
  const std::vector<int32_t> large = {0, kMost}, one = {0, 1};
  const std::vector<attention::Problem> fits = {Dense(large, one)};
  EXPECT_TRUE(PackOffsets(SmallSpec(), fits).ok());
  for (const auto& [q, k] : {std::pair{one, large}, std::pair{large, one}}) {
    const std::vector<attention::Problem> requests = {Dense(q, k), Dense(one, one)};
    EXPECT_EQ(ReasonOf(PackOffsets(SmallSpec(), requests).status()), Reason::kInternal);
  }
}

TEST(PackedOffsetsTest, FewerKeyHeadsAndValuesInKeysHaveNoGaps) {
  const std::vector<int32_t> one = {0, 1};
  attention::Spec spec = SmallSpec();
  spec.kv_heads = 1;
  std::vector<attention::Problem> requests = {Dense(one, one)};
  EXPECT_EQ(ReasonOf(PackOffsets(spec, requests).status()), Reason::kInternal);
  requests[0].key_stride = 4;
  requests[0].value_stride = 3;
  EXPECT_TRUE(PackOffsets(spec, requests).ok());
  spec.value_is_key_prefix = true;
  EXPECT_EQ(ReasonOf(PackOffsets(spec, requests).status()), Reason::kInternal);
  requests[0].value_stride = 4;
  EXPECT_TRUE(PackOffsets(spec, requests).ok());
}

TEST(PackedOffsetsTest, GapsAreRefused) {
  const std::vector<int32_t> one = {0, 1};
  for (int64_t attention::Problem::*stride :
       {&attention::Problem::query_stride, &attention::Problem::key_stride,
        &attention::Problem::value_stride, &attention::Problem::output_stride}) {
    std::vector<attention::Problem> requests = {Dense(one, one)};
    requests[0].*stride += 1;
    EXPECT_EQ(ReasonOf(PackOffsets(SmallSpec(), requests).status()), Reason::kInternal);
  }
}

// The cuts of a batch into launches, without a GPU.

constexpr double kEndless = std::numeric_limits<double>::infinity();

int64_t NoStep(int64_t, int64_t) { return 0; }

// The inputs of each row in order, by the definition of attention: its query, and the keys and
// values that it sees. They are text of the first elements, which almost surely differ.
std::vector<std::string> Rows(const Spec& spec, const Problem& p) {
  const auto* vanilla = std::get_if<Vanilla>(&spec.kernel);
  const bool causal = vanilla != nullptr && vanilla->causal;
  const auto name = [&](const std::byte* data, int64_t stride, int64_t token) {
    return std::to_string(attention::GetElement(data, spec.dtype, token * stride)) + " ";
  };
  std::vector<std::string> rows;
  for (int64_t s = 0; s < p.sequences(); ++s) {
    const int64_t queries = p.cu_seqlens_q[s + 1] - p.cu_seqlens_q[s];
    const int64_t keys = p.cu_seqlens_k[s + 1] - p.cu_seqlens_k[s];
    for (int64_t i = 0; i < queries; ++i) {
      const int64_t query = p.cu_seqlens_q[s] + i;
      std::string row = name(p.query, p.query_stride, query);
      if (p.cast.gate != nullptr) row += std::to_string(p.cast.gate[query]) + " ";
      if (!p.cast.layer_of_sequence.empty()) row += std::to_string(p.cast.layer(s)) + " ";
      const int64_t seen = causal ? keys - queries + i + 1 : keys;
      for (int64_t j = p.cu_seqlens_k[s]; j < p.cu_seqlens_k[s] + seen; ++j) {
        row += name(p.key, p.key_stride, j) + name(p.value, p.value_stride, j);
      }
      rows.push_back(row);
    }
  }
  return rows;
}

class PiecesTest : public testing::Test, protected Seeded {
 protected:
  std::vector<int32_t> Lengths(int count, int longest) {
    std::vector<int32_t> lengths(count);
    for (int32_t& length : lengths) length = UpTo(longest);
    return lengths;
  }

  Spec RandomSpec(Kernel kernel) {
    const DType dtype = kFloatingDTypes[Uniform(0, 2)];
    return MakeSpec(dtype, kernel, UpTo(3), UpTo(5), UpTo(5), 2);
  }

  // A limit under which a problem of this work is a few pieces, many, or one. Never a sum of works,
  // which rounding would put on either side.
  double Limit(double work) {
    return work * std::exp(std::uniform_real_distribution<double>(-4, 0.5)(random_));
  }

  double WorkOf(const Spec& spec, const Problem& batch) {
    double work = 0;
    for (const Piece& piece : CutBatch(spec, batch, kEndless, NoStep)) work += piece.work;
    return work;
  }
};

TEST_F(PiecesTest, EveryRowSeesWhatItSawInItsPlace) {
  for (int round = 0; round < 200; ++round) {
    const bool causal = round % 2 == 0;
    const Spec spec = RandomSpec(Vanilla{causal});
    const auto queries = Lengths(UpTo(5), 40);
    const auto keys = causal ? queries : Lengths(static_cast<int>(queries.size()), 40);
    OwnedProblem batch(spec, queries, keys, {UpTo(3), UpTo(3), UpTo(3), 0});
    batch.Randomize(random_);
    const int64_t step = UpTo(9);
    const double most = Limit(WorkOf(spec, batch.view));
    std::vector<std::string> rows;
    for (const Piece& piece :
         CutBatch(spec, batch.view, most, [&](int64_t, int64_t) { return step; })) {
      EXPECT_EQ(piece.first_token, static_cast<int64_t>(rows.size()));
      const PieceProblem problem(spec, batch.view, piece);
      EXPECT_EQ(problem.problem().query_tokens(), piece.queries);
      EXPECT_EQ(problem.problem().key_tokens(), piece.keys);
      for (std::string& row : Rows(spec, problem.problem())) rows.push_back(std::move(row));
    }
    EXPECT_EQ(rows, Rows(spec, batch.view));
  }
}

TEST_F(PiecesTest, GatesAndLayersOfCastFollowTheirSequences) {
  for (int round = 0; round < 50; ++round) {
    const Spec spec = RandomSpec(Cast{});
    const auto lengths = Lengths(UpTo(6), 30);
    OwnedProblem batch(spec, lengths, lengths);
    batch.Randomize(random_);
    std::vector<float> gate(batch.cu_seqlens_q.back());
    std::vector<int32_t> layers(lengths.size());
    for (float& g : gate) g = static_cast<float>(random_());
    for (int32_t& layer : layers) layer = UpTo(100);
    batch.view.cast.gate = gate.data();
    batch.view.cast.layer_of_sequence = layers;
    std::vector<std::string> rows;
    for (const Piece& piece : CutBatch(spec, batch.view, Limit(WorkOf(spec, batch.view)), NoStep)) {
      EXPECT_FALSE(piece.partial);
      const PieceProblem problem(spec, batch.view, piece);
      for (std::string& row : Rows(spec, problem.problem())) rows.push_back(std::move(row));
    }
    EXPECT_EQ(rows, Rows(spec, batch.view));
  }
}

TEST_F(PiecesTest, PiecesKeepToTheLimitUnlessTheyCannotBeCut) {
  for (int round = 0; round < 200; ++round) {
    const bool causal = round % 2 == 0;
    const Spec spec = RandomSpec(Vanilla{causal});
    const auto lengths = Lengths(UpTo(8), 3000);
    OwnedProblem batch(spec, lengths, lengths);
    const int64_t step = 128 * UpTo(4);
    const double most = Limit(WorkOf(spec, batch.view));
    const auto pieces = CutBatch(spec, batch.view, most, [&](int64_t, int64_t) { return step; });
    for (const Piece& piece : pieces) {
      const int64_t in_sequence = piece.first_token - batch.cu_seqlens_q[piece.first];
      if (piece.partial) {
        EXPECT_EQ(in_sequence % step, 0);
        EXPECT_GE(piece.queries, step);
        EXPECT_EQ(piece.keys, causal ? in_sequence + piece.queries : lengths[piece.first]);
        EXPECT_TRUE(piece.work <= most || piece.queries < 2 * step);
      } else {
        EXPECT_TRUE(piece.work <= most || (piece.count == 1 && piece.queries < 2 * step));
      }
    }
  }
}

// Against the least number over all ways to cut, by dynamic programming.
TEST_F(PiecesTest, FewerPiecesOfWholeSequencesWouldNotDo) {
  for (int round = 0; round < 100; ++round) {
    const Spec spec = RandomSpec(attention::PlainClusters(5));
    const int count = UpTo(12);
    OwnedProblem batch(spec, Lengths(count, 200), Lengths(count, 200));
    const double most = Limit(WorkOf(spec, batch.view));
    std::vector<double> work;
    for (int s = 0; s < count; ++s) {
      work.push_back(LaunchWork(spec, batch.cu_seqlens_q[s + 1] - batch.cu_seqlens_q[s],
                                batch.cu_seqlens_k[s + 1] - batch.cu_seqlens_k[s]));
    }
    std::vector<size_t> least = {0};
    for (int end = 1; end <= count; ++end) {
      least.push_back(least[end - 1] + 1);
      double sum = work[end - 1];
      for (int first = end - 2; first >= 0 && (sum += work[first]) <= most; --first) {
        least[end] = std::min(least[end], least[first] + 1);
      }
    }
    EXPECT_EQ(CutBatch(spec, batch.view, most, NoStep).size(), least.back());
  }
}

// Likewise for the queries of one sequence.
TEST_F(PiecesTest, FewerPartsWouldNotDo) {
  for (int round = 0; round < 100; ++round) {
    const bool causal = round % 2 == 0;
    const Spec spec = RandomSpec(Vanilla{causal});
    const int64_t step = UpTo(20);
    const auto length = static_cast<int32_t>(Uniform(2 * step, 40 * step));
    OwnedProblem batch(spec, {length}, {length});
    const double most = Limit(WorkOf(spec, batch.view));
    const int64_t steps = length / step;
    const auto begin = [&](int64_t i) { return i == steps ? length : i * step; };
    std::vector<size_t> least = {0};
    for (int64_t end = 1; end <= steps; ++end) {
      least.push_back(least[end - 1] + 1);
      for (int64_t first = 0; first < end; ++first) {
        const int64_t keys = causal ? begin(end) : length;
        if (LaunchWork(spec, begin(end) - begin(first), keys) > most) continue;
        least[end] = std::min(least[end], least[first] + 1);
      }
    }
    EXPECT_EQ(CutBatch(spec, batch.view, most, [&](int64_t, int64_t) { return step; }).size(),
              least.back());
  }
}

// The largest that int32 offsets can say; the arrays are not there.
TEST_F(PiecesTest, TheGreatestLengthsAreCutWithoutWrapping) {
  const int32_t most_tokens = std::numeric_limits<int32_t>::max();
  const std::vector<int32_t> offsets = {0, most_tokens};
  for (const bool causal : {false, true}) {
    Problem batch;
    batch.cu_seqlens_q = batch.cu_seqlens_k = offsets;
    const Spec spec = MakeSpec(DType::kFloat16, Vanilla{causal}, 65535, 256, 256);
    int64_t queries = 0;
    for (const Piece& piece : CutBatch(spec, batch, 1, [](int64_t, int64_t) { return 1 << 20; })) {
      EXPECT_TRUE(piece.partial);
      EXPECT_GT(piece.work, 0);
      queries += piece.queries;
      EXPECT_EQ(piece.keys, causal ? queries : most_tokens);
    }
    EXPECT_EQ(queries, most_tokens);
  }
}

// A batch must be predicted to take as long as its pieces together.
TEST(LaunchWorkTest, PartsAddUpToTheWhole) {
  constexpr int64_t kTokens = 1 << 16;
  for (const bool causal : {false, true}) {
    const Spec spec = MakeSpec(DType::kBFloat16, Vanilla{causal}, 8, 64, 64);
    double parts = 0;
    for (int64_t first = 0; first < kTokens; first += 4096) {
      parts += LaunchWork(spec, 4096, causal ? first + 4096 : kTokens);
    }
    EXPECT_NEAR(parts / LaunchWork(spec, kTokens, kTokens), 1, 0.01);
  }
}

}  // namespace
}  // namespace castor
