// A small BERT with random weights, written as a model directory, for running the encoder check
// where no real model is available.
#pragma once

#include <cstdint>
#include <string>

namespace castor::gpu {

struct TinyModel {
  int64_t hidden = 128;
  int64_t heads = 4;
  int64_t layers = 3;
  int64_t intermediate = 512;
  int64_t vocabulary = 1000;
  int64_t positions = 512;
};

// Writes config.json, model.safetensors and tokenizer.json into `directory`, which must exist.
// Returns whether all files could be written.
bool WriteTinyModel(const TinyModel& model, const std::string& directory, uint32_t seed);

}  // namespace castor::gpu
