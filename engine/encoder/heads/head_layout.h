// What a family's classes with a head compute behind its body, and where their checkpoints keep the
// weights. A family hands its layout over with its body (families.h).
//
// Names are whole, without ".weight" and ".bias"; empty: the class has no such part. One that
// begins with "~" has the body's prefix in its place.
#pragma once

#include <optional>
#include <string_view>

#include "engine/encoder/layers/activation.h"

namespace castor::encoder {

// From the body's rows to those that the last layer of a head gets: a square matrix with an
// activation, and a LayerNorm.
struct TransformNames {
  std::string_view dense;
  std::string_view dense_bias_key = "";       // config.json's key for it; empty: it has a bias
  std::optional<Activation> activation = {};  // unset: as activation_key says
  std::string_view activation_key = "";
  std::string_view activation_default = "gelu";  // without the key
  std::string_view norm = "";
  std::string_view norm_bias_key = "";  // likewise
};

// How a classifier of sequences gets one row of each: kLate averages the logits of all tokens.
enum class ClassifierPooling { kFirst, kMean, kLast, kLate };

struct ClassifierNames {
  TransformNames transform = {.dense = ""};
  std::string_view out;               // [labels, hidden]
  std::string_view pooling_key = "";  // config.json's; empty: always `pooling`
  ClassifierPooling pooling = ClassifierPooling::kFirst;
  bool bias = true;  // of `out`
};

struct MaskedLmNames {
  TransformNames transform = {.dense = ""};
  // [vocabulary, hidden]. Where it is not stored and config.json's tie_word_embeddings allows it,
  // the words' embeddings are taken in its place.
  std::string_view decoder = "";
  std::string_view words = "";
  std::string_view bias = "";  // [vocabulary], where the decoder has none stored; ends in "bias"
  std::string_view bias_key = "";  // of whether there is one; empty: there is
  bool by_default = true;          // tie_word_embeddings and bias_key
};

// [vocabulary, hidden], without a bias, of ...ForCausalLM. `words` likewise.
struct CausalLmNames {
  std::string_view decoder = "";
  std::string_view words = "";
};

struct HeadLayout {
  ClassifierNames sequences;  // ...ForSequenceClassification
  ClassifierNames tokens;     // ...ForTokenClassification
  MaskedLmNames masked = {};  // ...ForMaskedLM; an empty `words`: not served; likewise:
  CausalLmNames causal = {};
  // Of LayerNorms: config.json's key, and what is meant without it. An empty key: always that.
  std::string_view epsilon_key = "layer_norm_eps";
  double epsilon = 1e-12;
};

extern const HeadLayout kBertHeads;
extern const HeadLayout kCastorCastHeads;
extern const HeadLayout kRobertaHeads;
extern const HeadLayout kDebertaHeads;
extern const HeadLayout kDistilBertHeads;
extern const HeadLayout kElectraHeads;
extern const HeadLayout kModernBertHeads;
extern const HeadLayout kEuroBertHeads;
extern const HeadLayout kDecoderHeads;
extern const HeadLayout kGteHeads;
extern const HeadLayout kNewHeads;
extern const HeadLayout kNomicHeads;
extern const HeadLayout kNomicOwnHeads;
extern const HeadLayout kJinaV3Heads;

}  // namespace castor::encoder
