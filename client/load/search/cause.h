// What a broken rule of validity means for a search or a sweep.
#pragma once

#include <string_view>

namespace castor::load {

enum class Cause {
  kTooShort,  // a longer run will tell
  kOverload,  // work piles up: nobody can keep up such a rate
  kClient,    // the client did not keep up
  kOther,     // something is wrong that no other rate would mend
};

inline Cause CauseOf(std::string_view rule) {
  if (rule == "duration" || rule == "early-stopping") return Cause::kTooShort;
  if (rule == "stationary" || rule == "client-dropped") return Cause::kOverload;
  if (rule == "client-lag" || rule == "client-cpu") return Cause::kClient;
  return Cause::kOther;
}

}  // namespace castor::load
