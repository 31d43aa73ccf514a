#include "engine/encoder/heads/head_layout.h"

namespace castor::encoder {
namespace {

// RoBERTa's, whatever the prefix of the body is.
constexpr TransformNames kDenseOnCls = {.dense = "classifier.dense",
                                        .activation = Activation::kTanh};
constexpr TransformNames kLmHead = {
    .dense = "lm_head.dense", .activation = Activation::kGeluErf, .norm = "lm_head.layer_norm"};
constexpr TransformNames kBertLm = {.dense = "cls.predictions.transform.dense",
                                    .activation_key = "hidden_act",
                                    .norm = "cls.predictions.transform.LayerNorm"};
constexpr ClassifierNames kPoolerOnCls = {
    .transform = {.dense = "~pooler.dense", .activation = Activation::kTanh}, .out = "classifier"};
constexpr TransformNames kModernTransform = {.dense = "head.dense",
                                             .dense_bias_key = "classifier_bias",
                                             .activation_key = "classifier_activation",
                                             .norm = "head.norm",
                                             .norm_bias_key = "norm_bias"};

}  // namespace

const HeadLayout kBertHeads = {
    .sequences = {.transform = {.dense = "bert.pooler.dense", .activation = Activation::kTanh},
                  .out = "classifier"},
    .tokens = {.out = "classifier"},
    .masked = {.transform = kBertLm,
               .decoder = "cls.predictions.decoder",
               .words = "bert.embeddings.word_embeddings",
               .bias = "cls.predictions.bias"},
};

const HeadLayout kCastorCastHeads = {
    .sequences = {.out = "classifier", .pooling_key = "classifier_pooling"},
    .tokens = {.out = "classifier"},
    .masked = {.decoder = "decoder", .words = "embeddings.words", .bias = "decoder.bias"},
    .epsilon = 1e-5,
};

const HeadLayout kRobertaHeads = {
    .sequences = {.transform = kDenseOnCls, .out = "classifier.out_proj"},
    .tokens = {.out = "classifier"},
    .masked = {.transform = kLmHead,
               .decoder = "lm_head.decoder",
               .words = "~embeddings.word_embeddings",
               .bias = "lm_head.bias"},
};

const HeadLayout kDebertaHeads = {
    .sequences = {.transform = {.dense = "pooler.dense", .activation_key = "pooler_hidden_act"},
                  .out = "classifier"},
    .tokens = {.out = "classifier"},
    .masked = {.transform = kBertLm,
               .decoder = "cls.predictions.decoder",
               .words = "deberta.embeddings.word_embeddings",
               .bias = "cls.predictions.bias"},
    .epsilon = 1e-7,
};

const HeadLayout kDistilBertHeads = {
    .sequences = {.transform = {.dense = "pre_classifier", .activation = Activation::kRelu},
                  .out = "classifier"},
    .tokens = {.out = "classifier"},
    .masked = {.transform = {.dense = "vocab_transform",
                             .activation_key = "activation",
                             .norm = "vocab_layer_norm"},
               .decoder = "vocab_projector",
               .words = "distilbert.embeddings.word_embeddings",
               .bias = "vocab_projector.bias"},
    .epsilon_key = "",
};

const HeadLayout kElectraHeads = {
    .sequences = {.transform = {.dense = "classifier.dense", .activation = Activation::kGeluErf},
                  .out = "classifier.out_proj"},
    .tokens = {.out = "classifier"},
    // Served if embeddings are as wide as the rows.
    .masked = {.transform = {.dense = "generator_predictions.dense",
                             .activation = Activation::kGeluErf,
                             .norm = "generator_predictions.LayerNorm"},
               .decoder = "generator_lm_head",
               .words = "electra.embeddings.word_embeddings",
               .bias = "generator_lm_head.bias"},
};

const HeadLayout kModernBertHeads = {
    .sequences = {.transform = kModernTransform,
                  .out = "classifier",
                  .pooling_key = "classifier_pooling"},
    .tokens = {.transform = kModernTransform, .out = "classifier"},
    .masked = {.transform = kModernTransform,
               .decoder = "decoder",
               .words = "model.embeddings.tok_embeddings",
               .bias = "decoder.bias",
               .bias_key = "decoder_bias"},
    .epsilon_key = "norm_eps",
    .epsilon = 1e-5,
};

const HeadLayout kEuroBertHeads = {
    .sequences = {.transform = {.dense = "dense", .activation = Activation::kGeluErf},
                  .out = "classifier",
                  .pooling_key = "classifier_pooling",
                  .pooling = ClassifierPooling::kLate},
    .tokens = {.out = "classifier"},
    .masked = {.decoder = "lm_head",
               .words = "~embed_tokens",
               .bias = "lm_head.bias",
               .bias_key = "mlp_bias",
               .by_default = false},
};

// transformers' generic classes. They also stand in for a family's missing token classifier.
const HeadLayout kDecoderHeads = {
    .sequences = {.out = "score", .pooling = ClassifierPooling::kLast, .bias = false},
    .tokens = {.out = "score"},
    .causal = {.decoder = "lm_head", .words = "~embed_tokens"},
};

// The pooling is of the row, so that the mean has no other name than that of the published code.
const HeadLayout kBidirectionalLlamaHeads = [] {
  HeadLayout layout = kDecoderHeads;
  layout.sequences.pooling = ClassifierPooling::kMean;
  layout.sequences.pooling_key = "pooling";
  layout.sequences.temperature_key = "temperature";
  return layout;
}();

const HeadLayout kGemmaHeads = [] {
  HeadLayout layout = kDecoderHeads;
  layout.causal.tied = true;
  return layout;
}();

// Language models cap their logits, so that a difference of two is no product.
const HeadLayout kGemma2Heads = [] {
  HeadLayout layout = kDecoderHeads;
  layout.causal = {};
  return layout;
}();

const HeadLayout kGteHeads = {
    .sequences = kPoolerOnCls,
    .tokens = {.out = "classifier"},
    .masked = {.transform = {.dense = "lm_head.dense",
                             .activation = Activation::kGeluErf,
                             .norm = "lm_head.norm"},
               .decoder = "lm_head.decoder",
               .words = "~embeddings.word_embeddings",
               .bias = "lm_head.decoder.bias"},
};

// The published code reads the activation from config.json.
const HeadLayout kNewHeads = [] {
  HeadLayout layout = kGteHeads;
  layout.masked.transform.activation.reset();
  layout.masked.transform.activation_key = "hidden_act";
  return layout;
}();

const HeadLayout kNomicHeads = {
    .sequences = kPoolerOnCls,
    .tokens = {.out = "classifier"},
    .masked = {.transform = {.dense = "cls.predictions.transform.dense",
                             .activation_key = "hidden_act",
                             .activation_default = "silu",
                             .norm = "cls.predictions.transform.layer_norm"},
               .decoder = "cls.predictions.decoder",
               .words = "~embeddings.word_embeddings",
               .bias = "cls.predictions.bias"},
};

const HeadLayout kNomicOwnHeads = {
    .sequences = kPoolerOnCls,
    .tokens = {.out = "classifier"},
};

const HeadLayout kJinaV3Heads = [] {
  HeadLayout layout = kRobertaHeads;
  layout.epsilon = 1e-5;
  return layout;
}();

}  // namespace castor::encoder
