// The assignment of tokens to clusters: the parallel functions must match the serial loop bit for
// bit.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "engine/kernels/assignment.h"
#include "tests/support/sanitizer.h"
#include "tests/support/seeded.h"
#include "tests/support/twins/cast.h"

namespace castor::attention {
namespace {

using Clustering = Cast::Clustering;
using Members = std::vector<std::vector<int64_t>>;

using Runner = void (*)(kernels::Passes& passes);

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

// Some rounds have so many clusters that tokens keep lists of candidates and rebuild them.
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
