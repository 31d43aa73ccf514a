// Random protobuf messages, and random damage to their bytes.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "google/protobuf/message.h"

namespace castor::server::twin {

using Random = std::mt19937_64;

// Uniform in [low, high].
int64_t Draw(Random& random, int64_t low, int64_t high);

// Fills random fields of the message and of those inside it.
void Fill(Random& random, google::protobuf::Message* message);

// Sizes of slices for a message of `size` bytes; some are empty.
std::vector<size_t> DrawSlices(Random& random, size_t size);

// Each returns changed bytes for the message. These keep the bytes well-formed:
std::string Reorder(Random& random, const std::string& bytes);  // fields, at every level
std::string AddUnknownFields(Random& random, const std::string& bytes);
// These may not:
std::string FlipBytes(Random& random, std::string bytes);

// Pieces of the wire format.
std::string Varint(uint64_t value);
std::string PaddedVarint(uint64_t value, int bytes);  // over-long: `bytes` bytes in all
std::string FieldTag(uint32_t number, int wire_type);
std::string LengthField(uint32_t number, const std::string& content);

}  // namespace castor::server::twin
