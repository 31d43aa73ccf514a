// Every row of the CPU's variant table that computes CAST, against the double-precision twin.
// Also the size of its workspace.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/attention/cast/cast_layout.h"
#include "engine/kernels/assignment.h"
#include "tests/support/attention/cast_problem.h"
#include "tests/support/attention/variant_test.h"
#include "tests/support/sanitizer.h"
#include "tests/support/seeded.h"
#include "tests/support/twins/cast.h"

namespace castor::attention {
namespace {

using Clustering = Cast::Clustering;
using Members = std::vector<std::vector<int64_t>>;
using Runner = void (*)(kernels::Passes& passes);

class CastCpuTest : public VariantTest {
 protected:
  // Compares with the twin if rounding cannot change the clusters. Returns whether it did.
  bool ExpectRight(CastProblem& layer) {
    Run(layer.problem);
    if (!layer.HasMargins(random_)) return false;
    EXPECT_LE(RelativeError(layer.problem, layer.Reference()), Tolerance(layer.problem.spec.dtype));
    return true;
  }
};

TEST_P(CastCpuTest, MatchesTheReferenceInEveryReading) {
  const int rounds = Scaled(96);
  int judged = 0;
  for (int round = 0; round < rounds; ++round) {
    const DType dtype = kFloatTypes[round % 3];
    const int surrogates = UpTo(12);
    std::vector<int32_t> lengths;
    for (int sequences = UpTo(4); sequences > 0; --sequences) {
      lengths.push_back(UpTo(sequences == 1 ? 300 : 40));
    }
    const int longest = *std::max_element(lengths.begin(), lengths.end());
    const int least = (longest + surrogates - 1) / surrogates;
    const int size = round % 5 == 0 ? 0 : least + UpTo(longest + 3) - 1;
    const Spec spec = WithSharedHeads(MakeSpec(dtype, CastReading(round % kCastReadings, size),
                                               UpTo(4), UpTo(70), UpTo(70), surrogates));
    const Gaps gaps = {UpTo(9) - 1, UpTo(9) - 1, UpTo(9) - 1, UpTo(9) - 1};
    CastProblem layer(spec, lengths, random_, gaps);
    SCOPED_TRACE(testing::Message() << "round " << round << ": " << Describe(spec));
    judged += ExpectRight(layer) ? 1 : 0;
  }
  EXPECT_GE(judged, rounds / 2) << "the rest had clusters within float32's rounding";
}

// Each width of a panel, each remainder, the edges of tiles and of blocks of keys.
TEST_P(CastCpuTest, MatchesTheReferenceAtEveryLength) {
  for (int32_t length = 1; length <= 60; ++length) {
    CastProblem layer(MakeSpec(DType::kFloat32, CastOf(0), 1, 16, 24, 3), {length}, random_);
    SCOPED_TRACE(length);
    ExpectRight(layer);
  }
  for (const int32_t length : {95, 96, 97, 127, 128, 129, 255, 256, 257, 500, 513, 700}) {
    for (const int32_t size : {1, 127, 129, 256, 257, 1000}) {
      CastProblem layer(MakeSpec(DType::kFloat32, CastOf(size), 1, 8, 5, 2), {length}, random_);
      SCOPED_TRACE(testing::Message() << length << " tokens, clusters of " << size);
      ExpectRight(layer);
    }
  }
}

TEST_P(CastCpuTest, TakesTheDimensionsThatModelsHave) {
  for (const int64_t dim : {1, 2, 3, 32, 40, 64, 72, 80, 96, 128, 192, 256, 576}) {
    CastProblem layer(MakeSpec(DType::kFloat32, CastOf(0), 2, dim, dim, 4), {37, 3}, random_);
    SCOPED_TRACE(dim);
    ExpectRight(layer);
  }
}

TEST_P(CastCpuTest, TakesManySurrogates) {
  for (const int64_t surrogates : {13, 127, 128, 129, 300}) {
    for (const auto clustering : {Clustering::kTopK, Clustering::kSingleAssignmentTopK}) {
      const Spec spec = MakeSpec(DType::kFloat32, CastOf(3, clustering), 2, 16, 16, surrogates);
      CastProblem layer(spec, {25, 39}, random_);
      SCOPED_TRACE(surrogates);
      ExpectRight(layer);
    }
  }
}

TEST_P(CastCpuTest, TakesAnyScale) {
  for (int reading = 0; reading < 4; ++reading) {
    for (const double scale : {0.0, 1.0, -1.0, 1e-6, 3.0, -0.25}) {
      Spec spec = MakeSpec(DType::kFloat32, CastReading(reading, 0), 2, 16, 16, 4);
      spec.softmax_scale = scale;
      CastProblem layer(spec, {50}, random_);
      SCOPED_TRACE(testing::Message() << "scale " << scale << " reading " << reading);
      ExpectRight(layer);
    }
  }
}

TEST_P(CastCpuTest, EveryTokenInEveryClusterIsVanilla) {
  for (const DType dtype : kFloatTypes) {
    for (const int64_t surrogates : {1, 5}) {
      CastProblem layer(MakeSpec(dtype, CastOf(1000), 2, 24, 12, surrogates), {300, 1, 7}, random_);
      Run(layer.problem);
      EXPECT_LE(RelativeError(layer.problem, VanillaOfTheSame(layer.problem)), Tolerance(dtype));
    }
  }
}

// Equal tokens have equal affinities in any arithmetic. Such ties go to the lower token.
TEST_P(CastCpuTest, TiesGoToTheLowerToken) {
  for (int reading = 0; reading < kCastReadings; ++reading) {
    const Spec spec = MakeSpec(DType::kFloat32, CastReading(reading, 60), 2, 8, 8, 5);
    CastProblem layer(spec, {300}, random_);
    for (Elements* elements : {&layer.problem.query, &layer.problem.key}) {
      for (int64_t i = 16; i < elements->size(); ++i) elements->Set(i, elements->Get(i % 16));
    }
    std::fill(layer.gate.begin(), layer.gate.end(), 0.5f);
    Run(layer.problem);
    EXPECT_LE(RelativeError(layer.problem, layer.Reference()), 1e-5) << "reading " << reading;
  }
}

TEST_P(CastCpuTest, FewerTokensThanClusters) {
  for (int reading = 0; reading < kCastReadings; ++reading) {
    CastProblem layer(MakeSpec(DType::kFloat32, CastReading(reading, 0), 2, 16, 8, 40), {3, 39, 2},
                      random_);
    SCOPED_TRACE(reading);
    ExpectRight(layer);
  }
}

TEST_P(CastCpuTest, EachSequenceTakesItsOwnLayer) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    const Spec spec = MakeSpec(dtype, CastOf(0), 2, 16, 16, 4);
    CastProblem layer(spec, {30, 20, 30, 9}, random_);
    Elements layers(dtype, 3 * layer.surrogates.size());
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < layers.size(); ++i) layers.Set(i, normal(random_));
    const std::vector<int32_t> of_sequence = {2, 0, 2, 1};
    layer.problem.view.cast.surrogates = layers.data();
    layer.problem.view.cast.layer_of_sequence = of_sequence;
    Run(layer.problem);
    EXPECT_LE(RelativeError(layer.problem, layer.Reference()), Tolerance(dtype));
  }
}

TEST_P(CastCpuTest, RefusesClustersWithoutRoomForAllTokens) {
  const Spec spec =
      MakeSpec(DType::kFloat32, CastOf(9, Clustering::kSingleAssignmentTopK), 1, 4, 4, 2);
  CastProblem fits(spec, {18, 7}, random_);
  EXPECT_TRUE(GetParam().run(spec, {&fits.problem.view, 1}, RunToEnd()).ok());
  CastProblem does_not(spec, {18, 19}, random_);
  EXPECT_EQ(GetParam().run(spec, {&does_not.problem.view, 1}, RunToEnd()).code(),
            absl::StatusCode::kInvalidArgument);
}

// More members than the workspace has rows for, so tokens are combined in several parts. A column
// of the values does not depend on the other columns, so it must not change.
TEST_P(CastCpuTest, MembersMayBeTooManyForTheMemory) {
  for (const int32_t size : {150, 1000}) {
    // Or it takes a minute.
    if (kSanitized && (size != 150 || GetParam().backend == "cpu-portable")) continue;
    constexpr int32_t kTokens = 220;
    const Spec wide = MakeSpec(DType::kFloat32, CastOf(size), 1, 32, 800, 40);
    Spec narrow = wide;
    narrow.value_dim = 16;
    CastLayout layout(wide);
    ASSERT_TRUE(layout.Add(kTokens));
    ASSERT_LT(layout.rows(), CastLayout::Slots(wide, kTokens));

    std::mt19937 same = random_;
    CastProblem all(wide, {kTokens}, random_);
    CastProblem some(narrow, {kTokens}, same);  // the same queries and keys
    some.surrogates = all.surrogates;
    some.problem.view.cast.surrogates = some.surrogates.data();
    std::copy(all.gate.begin(), all.gate.end(), some.gate.begin());
    for (int64_t i = 0; i < some.problem.value.size(); ++i) {
      some.problem.value.Set(i, all.problem.value.Get(i / 16 * 800 + i % 16));
    }
    Run(all.problem);
    Run(some.problem);
    for (int64_t i = 0; i < some.problem.output.size(); ++i) {
      ASSERT_EQ(some.problem.output.Get(i), all.problem.Output(i / 16, 0, i % 16)) << i;
    }
    if (size > kTokens) {
      EXPECT_LE(RelativeError(all.problem, VanillaOfTheSame(all.problem)), 1e-5);
    }
  }
}

TEST_P(CastCpuTest, WorkspaceGrowsWithTheSequenceAndNotWithTheBatch) {
  const auto bytes = [](const Spec& spec, const std::vector<int32_t>& offsets) {
    return GetParam().workspace_bytes(spec, offsets, offsets);
  };
  const Spec spec = MakeSpec(DType::kFloat32, CastOf(256), 3, 32, 40, 64);
  const int64_t lone = bytes(spec, {0, 16384});
  EXPECT_GT(lone, 16384 * 64 * 4) << "the affinities alone";
  EXPECT_LT(lone, 64 << 20);
  std::vector<int32_t> many = {0};
  for (int i = 0; i < 1000; ++i) many.push_back(many.back() + 512);
  EXPECT_LT(bytes(spec, many), 64 << 20);
  // All tokens in all clusters: the rows are bounded, the lists of members are not.
  EXPECT_LT(bytes(MakeSpec(DType::kFloat32, CastOf(16384), 3, 32, 40, 64), {0, 16384}), 64 << 20);
}

INSTANTIATE_TEST_SUITE_P(Table, CastCpuTest, testing::ValuesIn(CpuRows({KernelName::kCast})),
                         NameOfRow);

// The assignment of tokens to clusters: the parallel functions must match the serial loop bit for
// bit.

void RunSerially(kernels::Passes& passes) {
  for (; passes.pass().tasks > 0; passes.Next()) {
    for (int64_t task = 0; task < passes.pass().tasks; ++task) passes.Do(task);
  }
}

void RunBackwards(kernels::Passes& passes) {
  for (; passes.pass().tasks > 0; passes.Next()) {
    ASSERT_FALSE(passes.pass().ordered);
    for (int64_t task = passes.pass().tasks - 1; task >= 0; --task) passes.Do(task);
  }
}

// The serial loop does not handle NaN: it gets a number less than all others instead.
std::vector<double> ByToken(const std::vector<float>& affinities, int64_t clusters) {
  const int64_t tokens = static_cast<int64_t>(affinities.size()) / clusters;
  std::vector<double> out(affinities.size());
  for (int64_t c = 0; c < clusters; ++c) {
    for (int64_t i = 0; i < tokens; ++i) {
      const float affinity = affinities[c * tokens + i];
      out[i * clusters + c] = std::isnan(affinity)   ? -1e300
                              : std::isinf(affinity) ? std::copysign(1e200, affinity)
                                                     : affinity;
    }
  }
  return out;
}

Members Assigned(const std::vector<float>& affinities, int64_t clusters, int64_t capacity,
                 Runner run) {
  const int64_t tokens = static_cast<int64_t>(affinities.size()) / clusters;
  std::vector<int32_t> offsets(clusters + 1);
  std::vector<int32_t> members(tokens);
  kernels::SingleAssignment assignment(tokens, clusters, capacity);
  assignment.Start(affinities.data(), offsets.data(), members.data());
  run(assignment);
  Members out;
  for (int64_t c = 0; c < clusters; ++c) {
    out.emplace_back(members.begin() + offsets[c], members.begin() + offsets[c + 1]);
  }
  return out;
}

Members Selected(const std::vector<float>& affinities, int64_t clusters, int64_t count) {
  const int64_t tokens = static_cast<int64_t>(affinities.size()) / clusters;
  std::vector<uint32_t> scratch(2 * tokens);
  std::vector<int32_t> members(count);
  Members out;
  for (int64_t c = 0; c < clusters; ++c) {
    kernels::SelectTop(affinities.data() + c * tokens, tokens, count, scratch.data(),
                       members.data());
    out.emplace_back(members.begin(), members.end());
  }
  return out;
}

class CastAssignmentTest : public testing::Test, protected Seeded {
 protected:
  // Affinities [clusters, tokens] of one of several kinds, harmless to nasty.
  std::vector<float> MakeAffinities(int kind, int64_t clusters, int64_t tokens) {
    std::uniform_real_distribution<float> uniform(0, 8);
    std::vector<float> affinities(clusters * tokens);
    for (float& affinity : affinities) affinity = uniform(random_);
    for (int64_t c = 0; c < clusters; ++c) {
      for (int64_t i = 0; i < tokens; ++i) {
        float& affinity = affinities[c * tokens + i];
        switch (kind % kKinds) {
          case 1:  // few values, many ties
            affinity = std::floor(affinity / 3);
            break;
          case 2:  // all tied
            affinity = 0.5f;
            break;
          case 3:  // all prefer one cluster
            affinity += c == 0 ? 10 : 0;
            break;
          case 4:  // all rank the clusters alike
            affinity = static_cast<float>(clusters - c) + affinity / 100;
            break;
          case 5:  // nearly equal: the leading bits decide nothing
            affinity = 1 + affinity * 0x1p-23f;
            break;
          case 6:  // each displaced token displaces the next
            affinity = static_cast<float>((i * 7 + c * 3) % (tokens + clusters));
            break;
          case 7: {  // values that no softmax gives
            constexpr float kOdd[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-42f, -3.0f, 1e38f};
            if (random_() % 2 == 0) affinity = kOdd[random_() % 8];
            break;
          }
          case 8:  // only NaN
            affinity = NAN;
            break;
          case 9:  // each round's proposals beat those of the round before
            affinity = static_cast<float>(i) / static_cast<float>(tokens) - static_cast<float>(c);
            break;
        }
      }
    }
    return affinities;
  }
  static constexpr int kKinds = 10;
};

// In some rounds there are so many clusters that each token keeps a list of candidates, and
// rebuilds it.
TEST_F(CastAssignmentTest, SingleAssignmentIsTheSerialLoops) {
  for (int round = 0; round < Scaled(5000); ++round) {
    const bool many = random_() % 50 == 0;
    const int64_t clusters = many ? 60 + UpTo(200) : UpTo(12);
    const int64_t tokens = UpTo(many ? 500 : round % 50 == 0 ? 900 : 90);
    const int64_t least = (tokens + clusters - 1) / clusters;
    // Often just enough places for the tokens.
    const int64_t capacity = least + (round % 3 == 0 ? UpTo(static_cast<int>(tokens)) - 1 : 0);
    const std::vector<float> affinities = MakeAffinities(round, clusters, tokens);
    const Members expected = CastMembers(ByToken(affinities, clusters), clusters, capacity,
                                         Clustering::kSingleAssignmentTopK);
    SCOPED_TRACE(testing::Message() << "round " << round << ": " << tokens << " tokens, "
                                    << clusters << " clusters of " << capacity);
    ASSERT_EQ(Assigned(affinities, clusters, capacity, RunSerially), expected);
    ASSERT_EQ(Assigned(affinities, clusters, capacity, RunBackwards), expected);
  }
}

TEST_F(CastAssignmentTest, SelectionIsTheSerialLoops) {
  for (int round = 0; round < Scaled(5000); ++round) {
    const int64_t clusters = UpTo(4);
    const int64_t tokens = UpTo(round % 50 == 0 ? 3000 : 90);
    const int64_t count = UpTo(static_cast<int>(tokens));
    const std::vector<float> affinities = MakeAffinities(round, clusters, tokens);
    ASSERT_EQ(Selected(affinities, clusters, count),
              CastMembers(ByToken(affinities, clusters), clusters, count, Clustering::kTopK))
        << "round " << round << ": " << count << " of " << tokens;
  }
}

// The worst case of single assignment must still end soon.
TEST_F(CastAssignmentTest, ManyTokensThatWantTheSameEndSoon) {
  const int64_t tokens = kSanitized ? 2000 : 16384;
  for (int kind = 0; kind < kKinds; ++kind) {
    const std::vector<float> affinities = MakeAffinities(kind, 64, tokens);
    const Members members = Assigned(affinities, 64, tokens / 64 + 1, RunSerially);
    int64_t assigned = 0;
    for (const auto& cluster : members) assigned += static_cast<int64_t>(cluster.size());
    EXPECT_EQ(assigned, tokens) << "kind " << kind;
  }
  // There are as many clusters as tokens, and all tokens rank them alike: a search of all clusters
  // in every round would take minutes.
  const int64_t clusters = kSanitized ? 300 : 3000;
  const std::vector<float> alike(clusters * clusters, 1.0f);
  for (const auto& cluster : Assigned(alike, clusters, 1, RunSerially)) {
    EXPECT_EQ(cluster.size(), 1u);
  }
}

}  // namespace
}  // namespace castor::attention
