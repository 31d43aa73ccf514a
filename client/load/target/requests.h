// The requests of castor.v1 that a class describes: equal seeds give equal requests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"
#include "client/load/workload/workload.h"

namespace castor::load {

// Throw cli::UsageError when a file cannot be read, and when the request would not fit a message;
// that is checked before anything is allocated.
v1::AttendRequest MakeAttend(const ClassSpec& spec, uint64_t seed);

// Texts of `lengths` common words, each one token of most vocabularies; or lines of `texts`, which
// is empty unless the class names a file.
v1::EncodeRequest MakeEncode(const ClassSpec& spec, const std::vector<std::string>& texts,
                             uint64_t seed);

// The lines of a file, one text each, empty ones left out. Throws cli::UsageError.
std::vector<std::string> ReadTexts(const std::string& file);

}  // namespace castor::load
