// The requests that a class describes: equal seeds give equal requests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "castor/v1/attention.pb.h"
#include "castor/v1/encoder.pb.h"
#include "client/load/send/payload.h"
#include "client/load/workload/workload.h"

namespace castor::load {

// One request. Throw cli::UsageError when a file cannot be read, and when the request would not fit
// a message; that is checked before anything is allocated. `texts`: see ReadTexts.
v1::AttendRequest MakeAttend(const ClassSpec& spec, uint64_t seed);
v1::EncodeRequest MakeEncode(const ClassSpec& spec, const std::vector<std::string>& texts,
                             uint64_t seed);

// The seed of a class's payload.
uint64_t SeedOf(uint64_t seed, const ClassSpec& spec, size_t payload);

// All payloads of all classes. Throws what those above throw, and cli::UsageError when they take
// more than 4 GiB of memory.
std::vector<std::vector<Payload>> MakePayloads(const std::vector<ClassSpec>& classes,
                                               uint64_t seed);

// The lines of a file, one text each, empty ones left out. Throws cli::UsageError.
std::vector<std::string> ReadTexts(const std::string& file);

}  // namespace castor::load
