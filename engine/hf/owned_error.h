// Error texts that the Rust library hands over.
#pragma once

#include <string>

#include "engine/hf/castor_hf.h"

namespace castor::hf {

// Copies and frees `error`.
inline std::string TakeError(char* error) {
  std::string text = error;
  castor_hf_free_error(error);
  return text;
}

}  // namespace castor::hf
