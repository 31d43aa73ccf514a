// An encoder model as scheduling, staging and the device see it: its description, how requests
// become token ids, and the network that computes their rows.
//
// Immutable, so any thread may call everything here. Includes no tensor library.
// engine/encoder/text/text_model.h is the model that is loaded from files.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/attention/variants.h"
#include "engine/encoder/layers/attention_layers.h"
#include "engine/encoder/network/activations.h"
#include "engine/encoder/text/prepare.h"
#include "engine/engine.h"
#include "engine/request.h"

namespace castor::encoder {

class Network;  // engine/encoder/network/network.h: holds tensors, so only device code includes it

class Model {
 public:
  virtual ~Model() = default;

  virtual const ModelInfo& info() const = 0;

  // Checks everything that needs no tokenizer: counts, lengths, id ranges, shapes, dtypes, byte
  // sizes, UTF-8, dimensions. Errors name the field as on the wire. Allocates nothing. The kernel
  // is checked by engine/attention/resolve.h.
  virtual absl::Status CheckInput(const EncodeRequest& request, int64_t max_sequences,
                                  int64_t max_text_bytes) const = 0;

  // The most tokens that PrepareSome can produce for the request. Requires that CheckInput passed.
  virtual int64_t EstimateTokens(const EncodeRequest& request) const = 0;

  // Tokenizes texts, or cuts token ids or embeddings, to the model's length. Requires that
  // CheckInput passed. INVALID_FIELD when a sequence is too long and `truncate` is off.
  //
  // Continues where `prepared`, initially a Prepared{}, ends. True: all is done; false: call again.
  // CANCELLED when stopped. After an error `prepared` must not be used.
  virtual absl::StatusOr<bool> PrepareSome(const EncodeRequest& request, const Slice& slice,
                                           Prepared* prepared) const = 0;

  // The same for a request that is only tokenized or detokenized, and the most bytes of its answer.
  // A text that makes too many tokens is INVALID_FIELD.
  virtual absl::StatusOr<bool> TokenizeSome(const EncodeRequest& request, const Slice& slice,
                                            Tokenized* tokenized) const = 0;
  virtual int64_t EstimateTokenizedBytes(const EncodeRequest& request) const = 0;

  // The attention of its layers if a request chooses `kernel`, which is never Automatic.
  virtual std::vector<AttentionLayers> attention(const Kernel& kernel) const;

  // The device memory of a batch, without the weights.
  virtual Activations activations() const { return {}; }

  // Computes batches on the device that loaded the model; null if that device needs no network.
  virtual const Network* network() const = 0;

  // The model that answers requests for which LooksUp (text/prompts.h) is true; null: this one.
  virtual const Model* lookup() const { return nullptr; }
};

// Checks that a device with these variants has the options that `kernel` asks for, in all layers;
// see attention::CheckOption.
absl::Status CheckOption(const Model& model, const Kernel& kernel,
                         std::span<const attention::Variant> variants);

// Prepares a whole request at once.
absl::StatusOr<Prepared> Prepare(const EncodeRequest& request, const Model& model);

}  // namespace castor::encoder
