// Writes a fuzz target's first corpus: make_seeds attend|encode FOLDER. Built with CASTOR_FUZZ; the
// corpora that it began, and that fuzzing extended, are checked in.

#include <fstream>
#include <functional>
#include <limits>
#include <string>

#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"
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

// A tensor and, for Attend, an output in one of the regions that the decoders are given.
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

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string folder = std::string(argv[2]) + "/";
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
