/* The C interface of the Rust library castor_hf: tokenizer.json and safetensors as their reference
 * implementations read them. Only json.h, tokenizer.cc and safetensors.cc include it.
 *
 * Every function that can fail returns NULL on success, else an error text that the caller frees
 * with castor_hf_free_error. Panics inside become errors too. Strings come as pointer and size and
 * need no terminator. Handles are immutable and may be shared by threads. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void castor_hf_free_error(char* error);

bool castor_hf_is_utf8(const uint8_t* data, size_t size);

/* ---- tokenizers ---- */

typedef struct castor_hf_tokenizer castor_hf_tokenizer;

/* A file's text; null data: there is no such file. */
typedef struct castor_hf_view {
  const uint8_t* data;
  size_t size;
} castor_hf_view;

/* The files of a model directory that make its tokenizer. */
typedef struct castor_hf_tokenizer_files {
  castor_hf_view tokenizer;  /* tokenizer.json */
  castor_hf_view vocabulary; /* vocab.txt or vocab.json, if there is no tokenizer.json */
  castor_hf_view merges;     /* merges.txt, likewise */
  castor_hf_view settings;   /* JSON: src/assemble.rs, Settings */
} castor_hf_tokenizer_files;

typedef struct castor_hf_tokenizer_info {
  /* One more than the greatest id and type id of an encoding, from the vocabulary, added tokens and
   * post-processor, if special tokens are not allowed in texts. */
  uint64_t id_limit;
  uint64_t type_limit;
  size_t added_tokens[2]; /* by the post-processor: to a text, to a pair */
  size_t longest_token;   /* the longest entry of the vocabulary, in bytes */
  bool cuts_left;         /* the side of tokenizer.json's truncation */
} castor_hf_tokenizer_info;

/* Makes the tokenizer that transformers makes of these files, without padding and truncation.
 * Errors name the file. A tokenizer that cannot encode every text is an error: the vocabulary lacks
 * the unknown token, an added token matches everywhere, the post-processor drops or repeats the
 * text, or the normalizer may make a text very long. */
char* castor_hf_tokenizer_open(const castor_hf_tokenizer_files* files, castor_hf_tokenizer** out,
                               castor_hf_tokenizer_info* info);
void castor_hf_tokenizer_close(castor_hf_tokenizer* tokenizer);

/* The tokens of one text within an encoding. */
typedef struct castor_hf_text_tokens {
  size_t begin;
  size_t end;
  size_t cut;  /* characters but whitespace were cut off from this byte on; SIZE_MAX: none */
  size_t head; /* characters were cut off up to this byte; 0: none */
} castor_hf_text_tokens;

/* The offsets that an encoding has. */
typedef enum castor_hf_offsets_kind {
  CASTOR_HF_NO_OFFSETS,
  CASTOR_HF_WITHOUT_SPACES, /* without whitespace at either end of a token */
  CASTOR_HF_AS_TOKENIZED,   /* the crate's own */
} castor_hf_offsets_kind;

/* The bytes [begin, end) of its text that a token was made of. */
typedef struct castor_hf_offsets {
  size_t begin;
  size_t end;
} castor_hf_offsets;

/* The result of one encoding; freed by castor_hf_encoding_free. */
typedef struct castor_hf_encoding {
  const uint32_t* ids;      /* [size] */
  const uint32_t* type_ids; /* [size] */
  size_t size;
  bool truncated;
  bool stopped;  /* by `stop`; then there are no ids */
  bool too_long; /* the normalizer makes the text too long; then there are no ids */
  /* [size]; NULL unless asked for. 0 to 0 for special tokens that were added, and without spaces
   * for tokens of whitespace only. */
  const castor_hf_offsets* offsets;
  castor_hf_text_tokens texts[2]; /* likewise */
  void* owner;
} castor_hf_encoding;

/* Encodes `text`, or the pair `text`, `pair` unless `pair` is NULL, into at most `max_tokens`
 * tokens, cutting the longer text first, on the left or on the right. If the pipeline allows
 * (src/cut.rs), a long text that is cut on the right is read only as far as needed. Offsets take a
 * little longer. `stop`, unless NULL, is called with `stop_context` between the parts of a long
 * text, and ends the work by returning true. */
char* castor_hf_tokenizer_encode(const castor_hf_tokenizer* tokenizer, const uint8_t* text,
                                 size_t text_size, const uint8_t* pair, size_t pair_size,
                                 size_t max_tokens, bool left, bool allow_special_tokens,
                                 bool add_special_tokens, castor_hf_offsets_kind offsets,
                                 bool (*stop)(void*), void* stop_context, castor_hf_encoding* out);
void castor_hf_encoding_free(castor_hf_encoding* encoding);

/* UTF-8; freed by castor_hf_text_free. */
typedef struct castor_hf_text {
  const uint8_t* data;
  size_t size;
  void* owner;
} castor_hf_text;

/* The vocabulary's entry; empty for an unknown id. */
char* castor_hf_tokenizer_token(const castor_hf_tokenizer* tokenizer, uint32_t id,
                                castor_hf_text* out);
/* The text of ids; unknown ids are left out. */
char* castor_hf_tokenizer_decode(const castor_hf_tokenizer* tokenizer, const uint32_t* ids,
                                 size_t size, bool skip_special_tokens, castor_hf_text* out);
void castor_hf_text_free(castor_hf_text* text);

/* ---- safetensors ---- */

typedef struct castor_hf_safetensors castor_hf_safetensors;

/* Reads a whole file of `size` bytes into memory and makes the format's checks. The file is not
 * mapped, since truncating a mapped file would kill the process. The descriptor stays the caller's.
 */
char* castor_hf_safetensors_open(int descriptor, uint64_t size, castor_hf_safetensors** out);
void castor_hf_safetensors_close(castor_hf_safetensors* file);

size_t castor_hf_safetensors_count(const castor_hf_safetensors* file);

/* Views into the handle. */
typedef struct castor_hf_tensor {
  const uint8_t* name;
  size_t name_size;
  const uint8_t* dtype; /* as the format spells it: "F32", "BF16", ... */
  size_t dtype_size;
  const uint64_t* shape;
  size_t dimensions;
  const uint8_t* data; /* row-major, little-endian, of no particular alignment */
  size_t data_size;
} castor_hf_tensor;

/* Requires index < castor_hf_safetensors_count. */
void castor_hf_safetensors_get(const castor_hf_safetensors* file, size_t index,
                               castor_hf_tensor* out);

#ifdef __cplusplus
}
#endif
