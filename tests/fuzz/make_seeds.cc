// Writes the first corpus of a fuzz target: make_seeds attend|encode|plan FOLDER. Built with
// CASTOR_FUZZ. The checked-in corpora began with these and were extended by fuzzing.

#include <fstream>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"
#include "tests/fuzz/numbers.h"
#include "tests/unit/server/codec/random_wire.h"

namespace {

using namespace castor::server::twin;
namespace v1 = castor::v1;

template <typename Message>
std::string DrawMessage(Random& random) {
  Message message;
  Fill(random, &message);
  return message.SerializeAsString();
}

void Write(const std::string& path, const std::string& message, Random& random) {
  std::string sizes;
  for (int64_t cuts = Draw(random, 0, 15); cuts > 0; --cuts) {
    sizes += static_cast<char>(Draw(random, 0, 40));
  }
  std::ofstream file(path, std::ios::binary);
  file << static_cast<char>(sizes.size()) << sizes << message;
}

// Refers to a tensor and, for Attend, an output in one of the regions that the decoders know.
std::string SharedMemory(const std::string& region, int64_t offset, int64_t size) {
  v1::SharedMemoryRef ref;
  ref.set_region(region);
  ref.set_offset(offset);
  ref.set_size(size);
  v1::AttendRequest request;
  for (v1::Tensor* tensor :
       {request.mutable_query(), request.mutable_key(), request.mutable_value()}) {
    tensor->set_dtype(v1::FLOAT16);
    for (const int64_t dimension : {3, 1, 2}) tensor->add_shape(dimension);
    *tensor->mutable_shared_memory() = ref;
  }
  *request.mutable_output() = ref;
  return request.SerializeAsString();
}

std::string Groups(int depth) {
  std::string begins;
  std::string ends;
  for (int i = 0; i < depth; ++i) {
    begins += FieldTag(20, 3);
    ends += FieldTag(20, 4);
  }
  return begins + ends;
}

// ---- attention_plan -----------------------------------------------------------------------------

struct PlanSeed {
  std::string name;
  int64_t tokens = 100;
  int64_t heads = 8;
  int64_t head_dim = 64;
  int64_t value_dim = 64;
  std::vector<int64_t> kernel = {};  // as bytes: its number, then its options
  std::vector<int64_t> more = {};    // the numbers after it
};

// Writes a plan with consistent shapes for each table; see attention_plan.cc.
void WritePlans(const std::string& folder, const PlanSeed& seed) {
  for (const uint8_t table : {0, 1}) {
    castor::fuzz::NumberWriter out;
    out.Byte(table).Byte(0);
    out.Number(seed.tokens).Number(seed.heads).Number(seed.head_dim).Number(seed.value_dim);
    out.Number(16);  // fidelity_rows
    for (const int64_t byte : seed.kernel) out.Byte(static_cast<uint8_t>(byte));
    for (const int64_t number : seed.more) out.Number(number);
    std::ofstream file(folder + seed.name + (table == 0 ? "-cpu" : "-cuda"), std::ios::binary);
    file << out.bytes();
  }
}

void WritePlanSeeds(const std::string& folder) {
  constexpr int64_t kMillion = int64_t{1} << 20;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  WritePlans(folder, {"vanilla", 100, 8, 64, 64, {0, 0}});
  WritePlans(folder, {"clustered", 100, 8, 64, 64, {1}, {100, 10, 63}});
  WritePlans(folder, {"improved", 100, 8, 64, 64, {2}, {100, 10, 63, 32}});
  WritePlans(folder, {"automatic", 1000, 8, 64, 64, {4, 0, 0, 0, 0, 0, 0, 0, 0xe0, 0x3f}});
  // Clusters times their size times value_dim is a multiple of 2^64.
  WritePlans(folder,
             {"cast-wraps", kMillion, 1, 1, 4 * kMillion, {3, 0}, {kMillion - 1, kMillion}});
  WritePlans(folder, {"clustered-most", kMost, 65535, 1, 1, {1}, {65536, 1000, 64}});
  WritePlans(folder, {"clustered-dims", 1, 1, kMillion, kMillion, {2}, {65536, 1000, 64, 1024}});
  WritePlans(folder, {"vanilla-dims", 1, 1, int64_t{1} << 58, 1, {0, 0}});
  WritePlans(folder, {"heads", 1, int64_t{1} << 58, 1, 1, {1}, {1, 1, 1}});
  for (int reading = 0; reading < 16; ++reading) {
    const std::string name = "cast-" + std::to_string(reading);
    WritePlans(folder, {name, 100, 8, 64, 64, {3, reading}, {0, 16}});
    WritePlans(folder, {name + "-most", kMost, 1, 1, 1, {3, reading}, {kMost, kMillion}});
  }
  WritePlans(folder, {"cast-layer", 9, 2, 4, 4, {3, 16}, {0}});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string folder = std::string(argv[2]) + "/";
  if (std::string(argv[1]) == "plan") {
    WritePlanSeeds(folder);
    return 0;
  }
  const auto draw = std::string(argv[1]) == "attend" ? DrawMessage<v1::AttendRequest>
                                                     : DrawMessage<v1::EncodeRequest>;
  Random random(1);
  for (int i = 0; i < 12; ++i) {
    const std::string number = std::to_string(i);
    Write(folder + "valid-" + number, draw(random), random);
  }
  for (int i = 0; i < 4; ++i) {
    const std::string number = std::to_string(i);
    Write(folder + "merged-" + number, draw(random) + draw(random), random);
    Write(folder + "reordered-" + number, Reorder(random, draw(random)), random);
    Write(folder + "unknown-" + number, AddUnknownFields(random, draw(random)), random);
  }
  if (std::string(argv[1]) == "attend") {
    constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
    Write(folder + "shared-memory", SharedMemory("r", 64, 12), random);
    Write(folder + "shared-memory-output-size", SharedMemory("r", 64, 13), random);
    Write(folder + "shared-memory-unknown", SharedMemory("s", 0, 12), random);
    Write(folder + "shared-memory-at-2-63", SharedMemory("huge", kMax - 20, 12), random);
    Write(folder + "shared-memory-beyond-2-63", SharedMemory("huge", 100, kMax), random);
    Write(folder + "shared-memory-negative", SharedMemory("r", -1, -1), random);
    Write(folder + "log-sum-exp", FieldTag(17, 0) + Varint(1), random);
    Write(folder + "value-is-key-prefix", FieldTag(18, 0) + Varint(1) + FieldTag(19, 0) + Varint(1),
          random);
    Write(folder + "log-sum-exp-twice", FieldTag(17, 0) + Varint(2) + FieldTag(17, 0) + Varint(0),
          random);
  }
  Write(folder + "empty", "", random);
  Write(folder + "groups-100", Groups(100), random);
  Write(folder + "groups-101", Groups(101), random);
  Write(folder + "groups-in-a-message", LengthField(3, Groups(99)), random);
  Write(folder + "length-2-31", FieldTag(2, 2) + Varint(uint64_t{1} << 31), random);
  Write(folder + "length-2-63", FieldTag(2, 2) + Varint(uint64_t{1} << 63), random);
  Write(folder + "long-varint", FieldTag(8, 0) + PaddedVarint(1, 10), random);
  Write(folder + "too-long-varint", FieldTag(8, 0) + PaddedVarint(1, 11), random);
  Write(folder + "not-utf-8", LengthField(1, "\xed\xa0\x80"), random);
  return 0;
}
