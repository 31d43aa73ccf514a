// What scheduling needs of the encoder, as a table of functions: engine/encoder/prepare.h in
// production, small stand-ins in unit tests, which have no model files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "engine/encoder/cast_file.h"
#include "engine/encoder/prepare.h"
#include "engine/engine.h"

namespace castor {

struct EncoderFunctions {
  std::function<const ModelInfo&(const encoder::Model&)> info;
  std::function<absl::Status(const EncodeRequest&, const ModelInfo&, int64_t max_sequences,
                             int64_t max_text_bytes)>
      check_input;
  std::function<int64_t(const EncodeRequest&, const ModelInfo&)> estimate_tokens;
  std::function<absl::StatusOr<bool>(const EncodeRequest&, const encoder::Model&,
                                     const encoder::Slice&, encoder::Prepared*)>
      prepare_some;
  // For sources that hold CAST layers and no encoder.
  std::function<bool(const std::string& path)> is_cast_file;
  std::function<absl::StatusOr<encoder::CastFile>(const ModelSource&)> read_cast_file;
};

}  // namespace castor
