// The heads of a family's classes: what they compute from the body's rows, and the names of their
// weights in checkpoints. A family provides its layout together with its body (families.h).
//
// Names are complete but for ".weight" and ".bias". An empty name: the class has no such part. A
// leading "~" stands for the prefix of the body's tensors.
#pragma once

#include <optional>
#include <string_view>

#include "engine/encoder/layers/linear.h"

namespace castor::encoder {

// The part of a head before its last layer: a square matrix with an activation, then a LayerNorm.
struct TransformNames {
  std::string_view dense;
  std::string_view dense_bias_key = "";  // config.json's key that enables the bias; empty: has one
  std::optional<Activation> activation = {};  // unset: config.json names it at activation_key
  std::string_view activation_key = "";
  std::string_view activation_default = "gelu";  // if the key is missing
  std::string_view norm = "";
  std::string_view norm_bias_key = "";  // as dense_bias_key
};

// The row that a classifier gets per sequence. kLate averages the logits of all tokens.
enum class ClassifierPooling { kFirst, kMean, kLast, kLate };

struct ClassifierNames {
  TransformNames transform = {.dense = ""};
  std::string_view out;               // the last layer, [labels, hidden]
  std::string_view pooling_key = "";  // config.json's key for the pooling; empty: always `pooling`
  std::string_view temperature_key = "";  // of what logits are divided by; empty: by nothing
  ClassifierPooling pooling = ClassifierPooling::kFirst;
  bool bias = true;  // whether `out` has one
};

struct MaskedLmNames {
  TransformNames transform = {.dense = ""};
  // [vocabulary, hidden]. If the decoder is not stored and tie_word_embeddings is true, the word
  // embeddings `words` are the decoder.
  std::string_view decoder = "";
  std::string_view words = "";
  std::string_view bias = "";  // [vocabulary], if none is stored with the decoder; ends in "bias"
  std::string_view bias_key = "";  // config.json's key that enables the bias; empty: has one
  bool by_default = true;          // the default of tie_word_embeddings and of bias_key
};

// The decoder of ...ForCausalLM, [vocabulary, hidden], without a bias; `words` as in MaskedLmNames.
struct CausalLmNames {
  std::string_view decoder = "";
  std::string_view words = "";
  bool tied = false;  // the default of tie_word_embeddings
};

struct HeadLayout {
  ClassifierNames sequences;  // ...ForSequenceClassification
  ClassifierNames tokens;     // ...ForTokenClassification
  MaskedLmNames masked = {};  // ...ForMaskedLM; not served if `words` is empty
  CausalLmNames causal = {};  // ...ForCausalLM; likewise
  // config.json's key for the LayerNorm epsilon and its default; an empty key: always the default.
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
extern const HeadLayout kBidirectionalLlamaHeads;
extern const HeadLayout kGemmaHeads;
extern const HeadLayout kGemma2Heads;
extern const HeadLayout kGteHeads;
extern const HeadLayout kNewHeads;
extern const HeadLayout kNomicHeads;
extern const HeadLayout kNomicOwnHeads;
extern const HeadLayout kJinaV3Heads;

}  // namespace castor::encoder
